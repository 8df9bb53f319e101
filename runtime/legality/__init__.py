"""`codegen legal`: an emitted module against the real device library, on a mock device of its board.

The process that asks never imports the library; one process for each board does (`worker`), since the library reads
its environment once and a fault in it ends the process. Nothing is computed there: this tells what is legal, what it
costs and what it occupies, and nothing about numbers.
"""
