-- Ids of the earlier lines that the model was shown with a question: a JSON list.
ALTER TABLE turns ADD COLUMN related TEXT NOT NULL DEFAULT '[]';
