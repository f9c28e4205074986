"""Every method on every chosen data set (DeepNote, Adaptive-Note and Amber, Table 1 of each)."""

from rag_notes.studies.base import Study

run = Study.run
