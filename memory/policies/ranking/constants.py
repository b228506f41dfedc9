"""The numbers of ranking, each with where it comes from.

"Design" is `retrieval.md`, measured there over ten conversations; "measured" was
measured here on the five open ones of LoCoMo (760 questions), where changing one number
to half or twice of what stands here moves recall@10 by 1.2 points at most, mostly by
less than a half.
"""

from __future__ import annotations

MIN_RELEVANCE = 0.015  # what injection and commands show by default: measured, see docs/decisions/071
# a word put in place of a typo counts less; questions spoilt
# by one slip: recall@10 79.8, uncorrected 76.6
CORRECTED = 0.8
K1 = 1.2  # how fast repetitions of a word stop counting: Robertson and Zaragoza (2009)
LENGTH = 0.4  # how much a long text's words count less: design
CONTENT = 4.0  # the weight of a word of the content, in which the counts of all parts are told
PREVIOUS, NEXT, SECOND = 0.3, 0.3, 0.15  # words of the neighbours, in parts of a text's own: design
ASKED = 0.6  # those of a previous one that asks: design

CONTEXT = 1.0  # the words, with the neighbours': what the others are told in
OWN_WORDS = 0.2  # its own words alone: design 0.3; measured
WINDOW = 0.7  # the cosine with the neighbours': design
OWN_MEANING = 0.1  # its own: design
BESIDE = (0.7, 0.5, 0.3)  # previous, next and second neighbours in the window's vector: design
SPEAKER = 0.8  # one speaker is named, and said it: design
ENDS_ASKING = -0.2  # questions are no answers: design
SESSION, SESSION_BEST = 0.2, 3  # the sum of the three best of its conversation: design
DATED = (
    (0.3, 3.0),
    (0.3, 14.0),
)  # the question names days: weights, and the days in which each falls to a third; design
LENGTHY = 0.1  # times ln(1 + words): longer texts say more; design
# words from which on they say no more: pages about something else would come before a
# short answer; costs recall@10 0.2 at most
LONGEST = 30
ANSWERS = 0.1  # of the previous one's score, where that asks: design
LEAST = 0.01  # a score stays above nought, so that multiplying keeps the order of what it multiplies

TYPE, TAG = 1.3, 1.2
FRESH_DAYS = 30.0
AGES = ((1.0, 0.9), (2.0, 0.75), (4.0, 0.6))  # up to so many half-lives
HALF_LIFE, FLOOR = 90.0, 0.5
LOCAL = 1.25  # the caller's own conversation: wins close calls, and never more than this
PHRASE, NEAR, NEAR_WORDS, FAR = (
    1.3,
    1.15,
    8,
    1.07,
)  # the order is the rows'; how much, so that it shows between equal texts
CLOSE_WORDS = (2, 6)
