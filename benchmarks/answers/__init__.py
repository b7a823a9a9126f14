"""Quality of answers: questions asked over IRC, compared with the same model without Terrarium."""
