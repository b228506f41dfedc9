"""The numbers of ranking, each with its source.

"Design" is `retrieval.md`, measured there over ten conversations. "Measured" was
measured here on the five open conversations of LoCoMo (760 questions). There, half or
twice of a number changes recall@10 by 1.2 points at most, usually by less than 0.5.
"""

from __future__ import annotations

MIN_RELEVANCE = 0.015  # the default of injection and commands: measured, see docs/decisions/071
# The weight of a corrected typo. For questions with one typo, recall@10 is 79.8, and
# 76.6 without corrections.
CORRECTED = 0.8
K1 = 1.2  # how fast repetitions of a word stop counting: Robertson and Zaragoza (2009)
LENGTH = 0.4  # how much the words of a long text count less: design
CONTENT = 4.0  # the weight of a content word; all counts are relative to it
PREVIOUS, NEXT, SECOND = 0.3, 0.3, 0.15  # words of the neighbours, relative to those of the text: design
ASKED = 0.6  # words of a previous text that asks: design

CONTEXT = 1.0  # words including those of neighbours; other weights are relative to it
OWN_WORDS = 0.2  # only the text's own words: design 0.3; measured
WINDOW = 0.7  # the cosine including the neighbours: design
OWN_MEANING = 0.1  # the text's own cosine: design
BESIDE = (0.7, 0.5, 0.3)  # previous, next and second neighbours in the window's vector: design
SPEAKER = 0.8  # the question names only this speaker: design
ENDS_ASKING = -0.2  # questions are not answers: design
SESSION, SESSION_BEST = 0.2, 3  # the sum of the three best texts of its conversation: design
DATED = (
    (0.3, 3.0),
    (0.3, 14.0),
)  # for questions that name days: weights, and days in which each falls to a third; design
# An entry of the named days, unless it was said in a conversation: there, people tell
# later what happened. Of 18 named days among 120 alike, 12 came first without it, and
# 18 with it; for conversations it would cost recall@10 0.4.
OF_THE_DAY = 0.2
LENGTHY = 0.1  # times ln(1 + words), as longer texts say more; design
# The number of words from which longer texts count no more. Otherwise pages about
# something else would precede a short answer. It costs recall@10 0.2 at most.
LONGEST = 30
ANSWERS = 0.1  # of the previous text's score, if that asks: design
LEAST = 0.01  # scores stay above 0, so that multipliers keep the order of their factors

TYPE, TAG = 1.3, 1.2
FRESH_DAYS = 30.0
AGES = ((1.0, 0.9), (2.0, 0.75), (4.0, 0.6))  # up to this many half-lives
HALF_LIFE, FLOOR = 90.0, 0.5
LOCAL = 1.25  # the caller's own conversation: it decides close calls only
PHRASE, NEAR, NEAR_WORDS, FAR = (
    1.3,
    1.15,
    8,
    1.07,
)  # the order is required; the sizes make a difference between equal texts
CLOSE_WORDS = (2, 6)
