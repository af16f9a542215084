"""Measures beyond the labels: information in a code that its label set does not have.

`material` loads a data set with texts and finer labels, `episodes` has the types of a stream and of
its questions, `protocols` makes them from a data set, `answers` evaluates a method on them,
`inquiries` stores the results.
"""
