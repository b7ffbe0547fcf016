"""What the verbs do, one file per verb. A file is loaded when its verb is run, and not for help.

Goes in: options as they were typed. Calls the rooms below, prints.
"""
