"""How plainly a line speaks of a failure, whoever wrote the program: by words that any program uses.

A line is judged by itself. What comes after it, and who says it, is for others to weigh.
"""

from __future__ import annotations

import re

from msgspec import Struct

from ...text.late import late

_LONG = 600  # characters that are looked through
# One of these is in every line that matters, in small letters.
_STEMS = (
    *("error", "fail", "fatal", "abort", "panic", "segv", "segmentation", "signal", "assert"),
    *("exception", "cannot", "can't", "could n", "couldn't", "unable", "invalid", "illegal"),
    *("out of ", "exceed", "corrupt", "lost", "died", "killed", "crash", "terminat", "unexpected"),
    *("supported", "mismatch", "refused", "denied", "broken", "unreachable", "reset by", "closed"),
    *("timed out", "timeout", "overflow", "insufficient", "not enough", "no such", "no space"),
    *("core dumped", "hang", "impossible", "disconnect", "not found", "not exist", "unhandled"),
    *("bus error", "uncaught", "severe", "no route", "unrecogni", "sigabrt", "sigbus", "sigfpe"),
    *("sigill", "exited", "exiting", "bad address", "bad file desc", "not implemented"),
    *("not permitted", "put/output error"),
)
_LEVEL = late(r"(?<![\w=./-])(?:ERROR|FATAL|CRITICAL|PANIC|SEVERE)(?![\w/-]|=|\.\w)")
# Words with numbers in them, and blanks: what differs between lines that say the same
NUMBERS = late(r"[^\s()\[\]<>'\",;/]{0,40}[\d/][^\s()\[\]<>'\",;]{0,80}|\s{1,80}")
_STRONG = late(
    r"(?<!non-)(?<!non)(?<!_)\b(?:fatal|panic(?:ked)?|aborted|aborting|segmentation (?:fault|violation)"
    r"|sig(?:segv|abrt|bus|fpe|ill)|core dumped|bus error|floating[- ]point exception|severe"
    r"|unrecoverable|irrecoverable|crash(?:ed|ing)|died|killed|terminate called|unhandled|uncaught"
    r"|cannot continue|bailing out|giving up|corrupt(?:ed|ion)|gpu hang|caught (?:error|signal|a signal)"
    r"|call(?:s|ed|ing) (?:mpi_)?abort\b(?! on| if| when)"
    r"|terminated (?:badly|abnormally|unexpectedly))\b"
    r"|\bexit(?:ed|ing)\b.{0,60}?\b(?:due to|improperly|abnormally|unexpectedly|non-?zero)\b"
    r"|(?<!to )(?<!or )(?<![\w-])abort(?!\w| on | if | when | after |\s?=)"
    r"|\bassert(?:ion)?\b.{0,200}?\bfail",
    re.I,
)
_PLAIN = late(
    r"(?<![\w./=-])(?:errors?(?![\w/-]|=|\.\w)(?!\s{0,3}[=:]?\s{0,3}[-+]?\d{0,20}\.\d)|exception(?![\w=-])"
    r"|fail(?:ed|s|ure|ures)?\b|cannot|can't|could ?n(?:o|')t|unable to|no such|invalid|illegal"
    r"|(?:does|do|did) ?n(?:o|')t exist|not (?:allowed|permitted|enough|implemented)|out of (?:memory|range|bounds|resources?|space|disk|file)"
    r"|exceed(?:s|ed)|overflow(?:ed)?|mismatch(?:ed)?|unexpected(?:ly)?|unsupported|unrecogni[sz]ed|insufficient"
    r"|bad (?:address|file descriptor)|input/output error"
    r"|refused|denied|impossible|no space|unreachable|no route|disconnected"
    r"|timed out|time-?out (?:occurred|reached|expired|exceeded|waiting|while)|(?:heartbeat|connection)[\w ]{0,20} (?:time-?out|lost)|lost (?:the )?connection"
    r"|broken pipe|reset by|closed by)\b|\b[A-Z]\w{0,60}(?:Error|Exception)\b",
    re.I,
)
_NO_FAILURE = late(
    r"\binsufficient information to |\b(?:0|no|zero|without(?: any| an)?|on|any) (?:\w{1,20} )?(?:error|failure|exception|warning)s?\b"
    r"|\b(?:errors?|failures?|failed)\s?[:=]\s?(?:0|none|false)\b|deprecat|\busage:|--help\b"
    r"|\berror[ _-](?:rates?|bars?|tolerance|norm|estimate|correction|handl\w{1,6}|logs?|file|code 0|messages?)\b"
    r"|\bsent help message\b|\b(?:previous|earlier) (?:attempt|run|start|job)\b|\b(?:did|does|do) ?n(?:ot|'t) detect\b"
    r"|\b(?:code|status) 0\b|\bCould not tell: |\bException raised from |\bthe above exception\b|\bframe #\d|^Reason: [\w ]{1,80} \(os error \d|\bptrace: Operation not|Could not attach to process|enable traceback|\btolerance\b|\bresidual",
    re.I,
)
_MILD = late(
    r"\bretry(?:ing)?\b|\bretries\b|\bwill (?:be|use|try|fall|continue|retry|not)\b|\bfall(?:ing|s)? ?back"
    r"|\bignor(?:ed|ing|e)\b|\bskip(?:s|ped|ping)?\b|\bcontinu(?:e|es|ing)\b|\bdefault(?:s|ing)?\b|\binstead\b"
    r"|\bmay\b|\bmight\b|\b(?:could|can) be\b|\b[Ii]f (?:you|this|it|the)\b|\bconsider\b|\brecommend"
    r"|\bharmless\b|\bnon-?fatal\b|\brecovered\b|\breconnect|\btry\b|\bplease\b|\bto debug\b|\bfor debugging\b",
    re.I,
)
_LOW_LEVEL = late(
    r"(?:(?<![\w-])|(?<=[A-Z]_))(?:WARN(?:ING)?S?|INFO|DEBUG|NOTICE|TRACE|VERBOSE)(?![\w-])|\b[Ww]arning:|\b[A-Z]\w{0,40}Warning\b"
    r"|(?:^|\[)[WID]\d{3,4} |(?:^|: |\[)[WID] [\w./-]{1,120}:\d"
)
_OF_LIBRARY = late(r"\b[A-Z]{3,10} WARN\b")  # which warns of what it gives up over
# A limit of the process itself
_USED_UP = late(r"\b[Tt]oo many \w+|\b0/\d{1,9} free\b|\bfree on this process\b|\bexhausted\b")
_CODE = late(
    r"\b(?:rc|errno|err(?:or)?(?: code)?|status|ret(?:urned|val)?)\s?[:=(]?\s?-?[1-9]\d{0,9}\b",
    re.I,
)
_LINK = late(
    r"\bconnect(?:ion)?\b|\bbroken pipe\b|\breset by\b|\bclosed by\b|\bunreachable\b|\bno route\b|\bdisconnect"
    r"|\bsockets?\b|\bnetwork\b|\bendpoint|\bpoll(?:ing)? failed\b|\bpeers?\b|\bremote\b|\bheartbeats?\b|\btimed out\b|\btime-?outs?\b|\btransport retry|\bretry count"
    r"|\b(?:from|by|of|in|on) (?:an)?other (?:rank|process|worker|node)s?\b"
    r"|\bcompletion\b|\bMPI_I?(?:S|B|R|Ss)?(?:end|ecv|endrecv)\b|\bcancell?ed\b",
    re.I,
)
_FRAME = late(
    r"^\s{0,80}(?:(?:\[\d{1,7}\] ?)?#\d|frame #|at \S{1,200}[:(]\d|File \"|\d{1,4}[: ]\s{0,4}0x|\[ ?\d{1,3}\] \S{0,200}0x|0x[0-9a-f]{6}"
    r"|\d{1,3} {1,4}/)|\(\w{0,200}\+0x[0-9a-f]{1,16}\)|\b[0-9A-Fa-f]{16}\b|^\s{0,40}[$+>] (?!\s{0,4}(?:ERROR|FATAL|CRITICAL)\b)|^\s{0,40}(?:export|set|alias|def|class|if|except|raise|return) "
)
# Who was asked to end, or ended since another one had failed
_ASKED = late(
    r"\bTerminated\s{0,4}$|\bSIGTERM\b|\bsignal (?:number )?15\b|\b(?:exit ?)?code[ =:]{1,3}(?:143|-15)\b"
)
_SETTING = late(r"^\s{0,80}['\"]?[\w.-]{1,60}['\"]?\s{0,30}=\s{0,4}\S{0,80},?\s{0,8}$")
_KEY = late(
    r"^\s{0,80}\"[\w .-]{1,60}\"\s?:|^\s{0,80}[\w.-]{0,60}[_.-][\w.-]{0,60}\s{0,30}[:=]\s{1,8}\S{1,60}\s{0,8}$"
    r"|\b[a-z]\w{0,40}_\w{1,40}\s?=\s?\S{1,60}\s{0,8}$"
)
# The head of a table, such as that of a benchmark, one column of which may be "error"
_COLUMNS = late(r"^[^:'\"=]{0,40}?(?:\s{2,40}[\w()/%.-]{1,24}){5}")
_HEADING = late(
    r"\bfollowing (?:\w{1,20} )?(?:errors?|exceptions?|problems?|failures?) (?:has |have |was |were |had )?(?:been )?"
    r"(?:occurred|encountered|raised|reported|detected|found|thrown)\b(?:[^:]|::){0,200}[.:]?\s{0,8}$"
    r"|^MPICH ERROR \[Rank \d{1,7}\](?: \[[^\]]{1,80}\]){1,5}\W{0,4}$"
    r"|^Application \d{1,12} is crashing\. ATP analysis proceeding",
    re.I,
)
# How a process ends, and not why: another line of the same block may say it
_END = late(
    r"\bcalled MPI_Abort\(|\bMPI_ERRORS_ARE_FATAL\b|^\W{0,8}Fatal Python error: \w{1,20}(?: \w{1,20})?\s{0,8}$"
    r"|\bSIG[A-Z]{3,5} received\b|\b[Rr]eceived signal SIG[A-Z]{3,5}\b|^\W{0,8}(?:Abort(?:ed|ing)?|Exiting|Terminating)\b\W{0,4}(?:\(core dumped\))?\W{0,4}$"
)
# Calls that tidy up: they fail in whatever state something else has left
_TIDIES = late(r"\b\w{2,60}_(?:destroy|fini|finalize|cleanup|deregister|dereg|free|unlink)\b")
# An assertion and its place, which say what failed to who reads the source
_ASSERTED = late(r"\bassert(?:ion)?\b.{0,200}?\bfail(?:ed|ure)?\b.{1,200}?\bline:? ?\d", re.I)
_MPICH = late(r"^MPICH ERROR \[Rank \d{1,7}\](?: \[[^\]]{1,80}\]){1,5}")
# Tags, of one line or of several that were printed into one another, and a ruler: a box begins, or ends
_RULER = late(
    r"(?:\s|\[\d{1,7}\]|(?:[A-Z][A-Z\d]{1,15} )?(?:ERROR|FATAL|BUG)\b ?:?|[:|]){0,40}[-=*%#_~]{8,}[\s|*]*$"
)
_WORD = late(r"[A-Za-z][A-Za-z_'-]{2,}")
_NAMES = late(r"[^\s/:.]{1,60}(?:/|::|\.(?=\w))\S{0,200}|/\S{1,200}")  # of files, modules, classes
_GENERAL = frozenset(
    "error errors fatal critical severe aborted aborting abort aborts job jobs process processes"
    " program task tasks exit exited exiting exits terminated terminating termination failed fail"
    " failure failing killed code codes status signal core dumped run running stop stopped stopping"
    " rank ranks node nodes host pid with due the was were is has have been for and one all of to in on at"
    " traceback message messages detected occurred happened found some see above below log logs"
    " details please check output its train training trainer worker workers calling called from line"
    " file returned non-zero nonzero application execution unknown shutting down badly following most"
    " recent call last stack number caught received this that not are more information try main"
    " exception exceptions cause caused after because job's out root first observed throwing instance"
    " request requests response server service terminate std ones per user-direction primary normally".split()
)


class Words(Struct, frozen=True):
    """What a line says of a failure: `strength` from 1, in passing, to 3, of an end."""

    strength: int
    general: bool  # that something failed, and not what
    between: bool  # of another process, or of a wait for one: who says so need not be at fault


def judged(text: str, level: str = "") -> Words | None:
    """What a line without its prefixes says of a failure; None where it speaks of none.

    `level` is that of the logger, or the line with its prefixes.
    """
    head = text[:_LONG]
    small = head.lower()
    if not any(stem in small for stem in _STEMS):
        return None
    strength = _strength(head)
    if not strength or not _is_prose(head):
        return None
    low = _LOW_LEVEL.search(level[:_LONG]) is not None or _LOW_LEVEL.search(head) is not None
    if low:
        of_library = _OF_LIBRARY.search(head) is not None or _warns_with_code(head, level)
        strength = min(strength, 2) if of_library else 0
    if _MILD.search(head) is not None or (strength < 3 and _TIDIES.search(head) is not None):
        strength -= 1
    if strength <= 0:
        return None
    return Words(strength, is_general(head), _LINK.search(head) is not None)


def is_own(text: str) -> bool:
    """Whether the reason at the end of an error stack is one that no other process can be behind."""
    words = judged(text)
    if words is None:
        return _USED_UP.search(text) is not None and _LINK.search(text) is None
    return not words.between


def _strength(head: str) -> int:
    if _STRONG.search(head) is not None or _LEVEL.search(head) is not None:
        return 3
    return 2 if _PLAIN.search(head) is not None else 0


def _warns_with_code(head: str, level: str) -> bool:
    warns = re.search(r"\bWARN", head) or re.search(r"\bWARN", level[:_LONG])
    return warns is not None and _CODE.search(head) is not None


def _is_prose(head: str) -> bool:
    """Whether it is no frame of a stack, no setting, and no count that is zero or a measure."""
    shaped = (_FRAME, _NO_FAILURE, _ASKED, _SETTING, _KEY, _COLUMNS)
    return _RULER.match(head) is None and not any(pattern.search(head) for pattern in shaped)


def is_frame(text: str) -> bool:
    """Whether a line belongs to a stack or a setting."""
    return _FRAME.search(text[:_LONG]) is not None


def is_end(text: str) -> bool:
    """Whether a line says that a process ends, or how, and not why."""
    return _END.search(text[:_LONG]) is not None


def is_heading(text: str) -> bool:
    """Whether a line only announces the words of a failure, which stand below it."""
    return _HEADING.search(text[:_LONG]) is not None


def is_general(text: str) -> bool:
    """Whether a line says that something failed and nothing of what."""
    if is_heading(text):
        return True
    if _ASSERTED.search(text[:_LONG]) is not None:
        return False
    text = _MPICH.sub("", text[:_LONG])
    plain = _NAMES.sub(" ", text[:_LONG])
    words = [word.lower() for word in _WORD.findall(plain)]
    return sum(word not in _GENERAL for word in words) < 2


_CLEAN = late(
    r"\b(?:success(?:ful|fully)?|normal termination|(?:ended|terminated|exited) normally(?!,? but)|goodbye"
    r"|(?:training|job|run|simulation|program|all) (?:is )?(?:complete[d]?|finished|done))\b",
    re.I,
)
_CLEAN_STEMS = ("success", "normal", "goodbye", "complete", "finished", "done")


def is_clean_end(text: str) -> bool:
    """Whether a line says that what was run came to its end."""
    head = text[:_LONG]
    small = head.lower()
    if not any(stem in small for stem in _CLEAN_STEMS) or "unsuccess" in small:
        return False
    return _CLEAN.search(head) is not None and _strength(head) == 0
