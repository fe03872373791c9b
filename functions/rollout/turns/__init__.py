"""What happens between a completion's turns: a tool's answer is inserted, and sampling goes on after it.

environment.py  the port: the text of a turn in, the text to insert out
calculator.py   the built-in tool, over arithmetic.py
tools.py        the tools by name
turn_loop.py    from a sequence whose turn has ended to the tokens to insert
spans.py        which tokens were inserted, and where turns begin
"""
