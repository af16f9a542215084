"""Experiments: methods on streams, what they measure, and the tables made of it.

A `task.Task` is data: a data set, a setting or scenario, a method with parameters, a code length,
a seed, and the kind of study. `runner.run` turns tasks into rows of a results file; `report` makes
tables, figures and a page of rows. Nothing else is stored.

=============  ===================================================================================
task           `Task`, all combinations of some choices, studies as TOML files, names of data sets
methods        every method by name: ours, and classes of other packages by import path
results        the one file format: a header and one row for each task; comparing two files
runner         tasks in several processes: resume, put aside, failures
measure        from codes and queries to the measures of a row
tables         rows as cells over seeds, intervals, and the tables of streams
figures        every figure
report         Markdown, HTML, LaTeX and CSV of one or several results files
=============  ===================================================================================

A kind of study is one module with ``facts`` (what its rows depend on), ``work`` (a task's row) and
``parts`` (its part of a report): `stream`, `convergence`, `tuning`, `beyond` (its streams and
questions are in `episodes`). `scenarios` has hard streams by name, `given` reads codes that were
made elsewhere.
"""
