"""To be replaced."""

import pickle

Unpickler = pickle.Unpickler
