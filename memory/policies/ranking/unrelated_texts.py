"""Texts that are unrelated to any question.

The mean cosine of a question with them is its similarity to any text, and relevance
starts from there. The constants in `calibrated` are valid for exactly these texts. Fit
them again after a change.
"""

from __future__ import annotations

UNRELATED_TEXTS = (
    "The train to the coast leaves at seven in the morning.",
    "She painted the kitchen walls pale yellow last spring.",
    "The committee approved the budget for the next quarter.",
    "A software update fixed the problem with the printer.",
    "My grandmother keeps her old letters in a wooden box.",
    "The football match was postponed because of heavy rain.",
    "He takes two tablets after breakfast for his blood pressure.",
    "We booked a table for six at the Italian restaurant.",
    "The museum has a large collection of ancient coins.",
    "Prices of wheat rose sharply after the drought.",
    "The children built a tree house behind the garage.",
    "Please send the signed contract before Friday.",
    "The river floods the lower fields every winter.",
    "Her daughter plays the violin in the school orchestra.",
    "The telescope shows galaxies billions of light years away.",
    "I lost my keys somewhere between the office and the gym.",
    "The court dismissed the appeal for lack of evidence.",
    "Fresh bread and soup were served at the community centre.",
    "Our cat sleeps on the warm radiator all day.",
    "The new bridge shortens the way to the airport.",
    "He studied chemistry before he became a teacher.",
    "The password for the server was changed yesterday.",
    "They went camping in the mountains with three friends.",
    "The novel tells the story of a sailor and his brother.",
    "Solar panels on the roof produce most of our electricity.",
    "The doctor recommended more sleep and less coffee.",
    "She has worked as a nurse for twenty years.",
    "The festival begins with a parade through the old town.",
    "I bought a second-hand bicycle for forty euros.",
    "The engine makes a strange noise when it is cold.",
    "What time does the pharmacy close on Saturday?",
    "How do you remove red wine from a carpet?",
    "Who wrote the music for that film?",
    "Where can I find the instructions for the dishwasher?",
    "Which language do people speak in the north of the country?",
    "Thank you so much, that sounds wonderful!",
    "I am feeling a bit tired and nervous today.",
    "Have you decided what to do about the job offer?",
    "The wedding photos turned out really well.",
    "The tax form must be filed by the end of April.",
)
