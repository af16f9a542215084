"""Measures beyond the labels: information in a code that its label set does not have.

`material` loads a data set with texts and finer labels, `protocols` divides it into streams and
questions, `answers` evaluates a method on them, `inquiries` stores the results.
"""
