"""What is captured and what is concluded: plain data. Nothing is imported here: ranks load parts of it."""
