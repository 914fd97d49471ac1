"""Documents that agents may ask questions of: read, cut into passages, and found by meaning.

formats/         reads each kind of file into blocks of text with their places
jailed_reader    the program that does so in the jail, for whatever is not plain text
reader           has a file read, in the jail where that is needed
passages         cuts the blocks of a document into passages
library          keeps the passages of each tenant and persona with their embeddings, and finds them
"""
