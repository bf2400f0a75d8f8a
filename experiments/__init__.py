"""The paper's experiments and other studies. Not part of the wheel; run from a checkout.

python -m experiments.images table1 --help     images: tables 1 and 2, the severe setup, people as experts
python -m experiments.llm llm --help           language models: the main table, ablation, noise, extreme
python -m experiments.show results             tables of any results files beside the paper's figures
python -m experiments.defer --help             learning to defer: all methods, public data; a GPU part
python -m experiments.planning --help          which outcomes to buy next, for a sum of dollars
python -m experiments.page                     the tables of docs/science/reproduction.md

experiments.theory has the guarantees of docs/science/theory.md in numbers.
"""
