"""Tables of people: reading files, deciding what each column holds, making numbers of the columns."""
