"""Measures beyond the labels: what a code says that its label set does not.

`material` loads a data set with texts and finer labels, `protocols` deals it into streams and
questions, `answers` asks them of a method, `results` keeps what comes out.
"""
