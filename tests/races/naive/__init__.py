"""The predecessor's classes, and the fixes its reports suggested: what our tests must be able to catch.

Rebuilt from the reports, statement for statement where they quote code, one file per component. Each race
test runs against these, too, and must fail on them; a test that passes here proves nothing about ours.
"""
