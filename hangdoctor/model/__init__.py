"""What is captured and what is concluded: plain data, so light that ranks may load parts of it."""
