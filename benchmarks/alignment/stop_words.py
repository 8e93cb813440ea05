"""English stop words by which the tasks of this benchmark were made; another list would make other tasks.

The list was written for this project, one class of words after the other, and is taken from no other list. It is
longer than the closed classes of the grammar: verbs and adverbs that say nothing about a topic are in it too.
"""

from __future__ import annotations

_DETERMINERS = """
a an the this that these those such same another other others each every either neither both all any some none no
few fewer less least little many more most much several enough half own certain one ones two first second last next
"""
_PRONOUNS = """
i me my mine myself you your yours yourself yourselves he him his himself she her hers herself it its itself
we us our ours ourselves they them their theirs themselves who whom whose whoever which whichever what whatever
someone somebody something anyone anybody anything everyone everybody everything nobody nothing
"""
_PREPOSITIONS = """
about above across after against along alongside amid among amongst around as at before behind below beneath beside
besides between beyond by despite down during except for from in inside into like near of off on onto out outside
over past per regarding since than through throughout till to toward towards under unlike until up upon versus via vs
with within without
"""
_CONJUNCTIONS = """
and but or nor so yet because although though while whilst whereas whether if unless lest once when whenever where
wherever why how however hence thus therefore thereby moreover furthermore nevertheless nonetheless otherwise instead
meanwhile
"""
_AUXILIARIES = """
am is are was were be been being do does did doing done have has had having can cannot could may might must ought
shall should will would
"""
_ADVERBS = """
again ago almost already also altogether always anyway apart away back barely else elsewhere especially ever everywhere
far further generally hardly here indeed just largely later likewise mainly maybe merely mostly namely nearly never
not now nowhere often only particularly perhaps possibly probably quite rather really recently respectively seldom
simply sometimes somewhat somewhere soon still then there too together usually very well
"""
_EMPTY_VERBS = """
became become becomes becoming came come comes coming gave get gets getting give given gives giving go goes going gone
got keep keeps kept let lets made make makes making said say saying says seem seemed seeming seems take taken takes
taking took use used uses using want wanted wants went
"""
_SHORT_FORMS = """
ain't aren't can't couldn't didn't doesn't don't hadn't hasn't haven't isn't mightn't mustn't needn't shan't shouldn't
wasn't weren't won't wouldn't i'd i'll i'm i've you'd you'll you're you've he'd he'll she'd she'll it'd it'll we'd
we'll we're we've they'd they'll they're they've that'd that'll there'd there'll what'll who'd who'll eg ie etc ok
okay oh yes
"""

STOP_WORDS = frozenset(
    " ".join(
        (
            _DETERMINERS,
            _PRONOUNS,
            _PREPOSITIONS,
            _CONJUNCTIONS,
            _AUXILIARIES,
            _ADVERBS,
            _EMPTY_VERBS,
            _SHORT_FORMS,
        )
    ).split()
)
