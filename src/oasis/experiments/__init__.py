"""Experiments: run methods over streams, store the results, measure and report them.

A `run.definition.Run` is data, and its key is its path. `run` executes it and stores raw results,
`measure` turns them into summaries, `report` turns summaries into tables, figures and a page.
`grid` executes many runs; `scenarios` are hard streams by name. Each step reads only the output of
the step before it, and does not modify it.

===========  =====================================================================================
run/         definition (`Run`, `Grid`), methods (by name), brought (yours, by import path), runner
             (one run), results (its file), given (codes made elsewhere), scaling, workers, machine
measure/     measures (from results to a summary), summaries, queries (differences and their
             intervals), cells (means over seeds), convergence, traces, paper (published figures)
report/      report (all of it), headline (the README's table), tables, studies, figures, beyond
scenarios/   transformations (a scenario as data), trials, scoreboard
beyond/      measures beyond the labels
grid         many runs, resumed, in several processes
tuning       the grid of each method, searched with equal trials
evaluation   codes made elsewhere, evaluated by every measure
===========  =====================================================================================
"""
