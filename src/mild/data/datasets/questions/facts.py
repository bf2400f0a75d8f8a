"""Small facts of school books, asked for a word or with four options."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from random import Random

from mild.data.datasets.questions.rows import Row, make_row

__all__ = ["FACTS", "facts"]

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _pairs(text: str) -> dict[str, str]:
    """``left=right`` pairs, separated by semicolons; blanks around them do not count."""
    halves = [pair.split("=") for pair in text.split(";")]
    return {left.strip(): right.strip() for left, right in halves}


# Task: grade, question, left and right sides.
FACTS: Mapping[str, tuple[int, str, dict[str, str]]] = {
    "capital": (
        2,
        "What is the capital of {}?",
        _pairs(
            "France=Paris; Italy=Rome; Spain=Madrid; Germany=Berlin; Portugal=Lisbon; Austria=Vienna;"
            "Greece=Athens; Poland=Warsaw; Sweden=Stockholm; Norway=Oslo; Finland=Helsinki;"
            "Denmark=Copenhagen; Ireland=Dublin; Belgium=Brussels; Hungary=Budapest; Romania=Bucharest;"
            "Bulgaria=Sofia; Croatia=Zagreb; Serbia=Belgrade; Ukraine=Kyiv; Russia=Moscow; Turkey=Ankara;"
            "Egypt=Cairo; Kenya=Nairobi; Ghana=Accra; Ethiopia=Addis Ababa; Morocco=Rabat; Tunisia=Tunis;"
            "Senegal=Dakar; Uganda=Kampala; Japan=Tokyo; China=Beijing; India=New Delhi; Thailand=Bangkok;"
            "Vietnam=Hanoi; Nepal=Kathmandu; Iran=Tehran; Iraq=Baghdad; Pakistan=Islamabad; Cuba=Havana;"
            "Bangladesh=Dhaka; Mongolia=Ulaanbaatar; Indonesia=Jakarta; the Philippines=Manila;"
            "Canada=Ottawa; Mexico=Mexico City; Brazil=Brasilia; Argentina=Buenos Aires; Chile=Santiago;"
            "Peru=Lima; Colombia=Bogota; Venezuela=Caracas; Ecuador=Quito; Uruguay=Montevideo;"
            "Australia=Canberra; New Zealand=Wellington; Iceland=Reykjavik; Latvia=Riga; Estonia=Tallinn;"
            "Lithuania=Vilnius; Slovenia=Ljubljana; Slovakia=Bratislava; Albania=Tirana; Malta=Valletta;"
            "Jamaica=Kingston; Jordan=Amman; Lebanon=Beirut; Syria=Damascus; Qatar=Doha; Zambia=Lusaka;"
            "Zimbabwe=Harare; Angola=Luanda; Mali=Bamako; Libya=Tripoli; Cyprus=Nicosia; Georgia=Tbilisi;"
            "Armenia=Yerevan; Cambodia=Phnom Penh; Laos=Vientiane; Saudi Arabia=Riyadh;"
            "Paraguay=Asuncion; Honduras=Tegucigalpa; Nicaragua=Managua; Scotland=Edinburgh; Wales=Cardiff"
        ),
    ),
    "country": (
        2,
        "In which country is the city of {}?",
        _pairs(
            "Munich=Germany; Lyon=France; Milan=Italy; Barcelona=Spain; Krakow=Poland; Osaka=Japan;"
            "Shanghai=China; Mumbai=India; Toronto=Canada; Sydney=Australia; Chicago=United States;"
            "Sao Paulo=Brazil; Porto=Portugal; Salzburg=Austria; Geneva=Switzerland; Istanbul=Turkey;"
            "Alexandria=Egypt; Bergen=Norway; Antwerp=Belgium; Rotterdam=Netherlands; Cusco=Peru;"
            "Medellin=Colombia; Auckland=New Zealand; Cape Town=South Africa; Marrakesh=Morocco"
        ),
    ),
    "opposite": (
        1,
        'What is the opposite of "{}"?',
        _pairs(
            "hot=cold; big=small; fast=slow; up=down; left=right; day=night; open=closed; happy=sad;"
            "old=young; rich=poor; light=dark; wet=dry; full=empty; hard=soft; high=low; strong=weak;"
            "early=late; loud=quiet; clean=dirty; near=far; thick=thin; heavy=light; true=false; win=lose;"
            "buy=sell; push=pull; love=hate; begin=end; north=south; east=west; always=never; deep=shallow;"
            "good=bad; new=old; black=white; inside=outside; front=back; top=bottom; alive=dead;"
            "rough=smooth; sharp=blunt; asleep=awake; brave=cowardly; cheap=expensive; easy=difficult;"
            "first=last; give=take;"
            "guilty=innocent; huge=tiny; increase=decrease; laugh=cry; long=short; more=less; noisy=quiet;"
            "polite=rude; question=answer; sweet=sour; tall=short; summer=winter; victory=defeat;"
            "wide=narrow"
        ),
    ),
    "plural": (
        1,
        'What is the plural of "{}"?',
        _pairs(
            "cat=cats; child=children; mouse=mice; foot=feet; tooth=teeth; man=men; woman=women; ox=oxen;"
            "goose=geese; box=boxes; city=cities; knife=knives; leaf=leaves; wolf=wolves; baby=babies;"
            "bus=buses; hero=heroes; person=people; life=lives; story=stories; dish=dishes;"
            "cherry=cherries; thief=thieves; tree=trees; house=houses; fox=foxes; toy=toys; dog=dogs;"
            "watch=watches; lady=ladies; potato=potatoes; shelf=shelves; party=parties; key=keys;"
            "half=halves;"
            "berry=berries; church=churches; glass=glasses; loaf=loaves; country=countries; monkey=monkeys"
        ),
    ),
    "past": (
        2,
        'What is the past tense of "{}"?',
        _pairs(
            "go=went; see=saw; eat=ate; run=ran; take=took; give=gave; write=wrote; sing=sang; buy=bought;"
            "think=thought; bring=brought; catch=caught; teach=taught; fly=flew; know=knew; grow=grew;"
            "swim=swam; drink=drank; begin=began; find=found; keep=kept; sleep=slept; leave=left; win=won;"
            "lose=lost; sell=sold; tell=told; walk=walked; play=played; speak=spoke; break=broke;"
            "drive=drove; choose=chose; feel=felt; hear=heard; hold=held; meet=met; pay=paid; ride=rode;"
            "ring=rang; rise=rose; say=said; send=sent; shake=shook; sit=sat; spend=spent; stand=stood;"
            "steal=stole; throw=threw; wake=woke; wear=wore; build=built; draw=drew; fall=fell;"
            "fight=fought"
        ),
    ),
    "symbol": (
        3,
        "What is the chemical symbol of {}?",
        _pairs(
            "hydrogen=H; helium=He; carbon=C; nitrogen=N; oxygen=O; sodium=Na; iron=Fe; gold=Au; silver=Ag;"
            "copper=Cu; zinc=Zn; lead=Pb; tin=Sn; potassium=K; calcium=Ca; magnesium=Mg; aluminium=Al;"
            "silicon=Si; sulfur=S; chlorine=Cl; neon=Ne; mercury=Hg; phosphorus=P; nickel=Ni"
        ),
    ),
    "language": (
        2,
        "Which language is mainly spoken in {}?",
        _pairs(
            "France=French; Germany=German; Spain=Spanish; Italy=Italian; Portugal=Portuguese;"
            "Brazil=Portuguese; Mexico=Spanish; Japan=Japanese; Russia=Russian; Poland=Polish;"
            "Sweden=Swedish; Greece=Greek; Turkey=Turkish; Egypt=Arabic; Austria=German; Iran=Persian;"
            "Argentina=Spanish; Hungary=Hungarian; Finland=Finnish; Norway=Norwegian; Thailand=Thai"
        ),
    ),
    "young": (
        2,
        "What is a young {} called?",
        _pairs(
            "dog=puppy; cat=kitten; cow=calf; horse=foal; sheep=lamb; goat=kid; pig=piglet; duck=duckling;"
            "goose=gosling; bear=cub; lion=cub; deer=fawn; kangaroo=joey; swan=cygnet; frog=tadpole"
        ),
    ),
    "kind": (
        1,
        "Is {} an animal, a fruit, a tool or a vehicle?",
        _pairs(
            "a horse=animal; an apple=fruit; a hammer=tool; a bus=vehicle; a dog=animal; a pear=fruit;"
            "a saw=tool; a train=vehicle; a rabbit=animal; a cherry=fruit; a drill=tool; a lorry=vehicle;"
            "an elephant=animal; a plum=fruit; a screwdriver=tool; a bicycle=vehicle; a snake=animal;"
            "a mango=fruit; a shovel=tool; a tractor=vehicle; an eagle=animal; a peach=fruit; an axe=tool;"
            "an ambulance=vehicle; a whale=animal; a grape=fruit; a wrench=tool; a motorcycle=vehicle"
        ),
    ),
    "colour": (
        1,
        "What colour is {}?",
        _pairs(
            "a ripe banana=yellow; fresh snow=white; grass=green; a clear sky=blue; coal=black; blood=red;"
            "a ripe tomato=red; a lemon=yellow; an emerald=green; a ruby=red; chocolate=brown; ivory=white"
        ),
    ),
    "next": (
        1,
        'Which letter comes after "{}" in the alphabet?',
        dict(pairwise(ALPHABET)),
    ),
    "continent": (
        1,
        "On which continent is {}?",
        _pairs(
            "France=Europe; Italy=Europe; Spain=Europe; Poland=Europe; Norway=Europe; Greece=Europe;"
            "Egypt=Africa; Kenya=Africa; Ghana=Africa; Nigeria=Africa; Morocco=Africa; Uganda=Africa;"
            "Japan=Asia; China=Asia; India=Asia; Vietnam=Asia; Nepal=Asia; Thailand=Asia; Iraq=Asia;"
            "Canada=North America; Mexico=North America; Cuba=North America; Brazil=South America;"
            "Chile=South America; Peru=South America; Ecuador=South America; Bolivia=South America"
        ),
    ),
    "sides": (
        2,
        "How many sides has a {}?",
        _pairs("triangle=3; square=4; pentagon=5; hexagon=6; octagon=8; rectangle=4; decagon=10"),
    ),
    "roman": (
        3,
        "Which number is the Roman numeral {}?",
        _pairs(
            "III=3; IV=4; VI=6; VII=7; IX=9; XI=11; XIV=14; XV=15; XIX=19; XX=20; XXIV=24; XXX=30; XL=40;"
            "L=50; LX=60; XC=90; C=100; CD=400; D=500; CM=900; M=1000; LV=55; XXXIII=33; LXXX=80; MM=2000"
        ),
    ),
    "spelled": (
        1,
        'Write the number "{}" in digits.',
        _pairs(
            "seven=7; twelve=12; fifteen=15; nineteen=19; twenty-one=21; thirty-four=34; forty-seven=47;"
            "fifty-six=56; sixty-eight=68; seventy-three=73; eighty-two=82; ninety-nine=99; ninety=90;"
            "two hundred and five=205; three hundred and forty=340; one thousand=1000; eleven=11;"
            "one hundred=100; sixteen=16; twenty-eight=28; thirty-nine=39; fifty-five=55; sixty-one=61;"
            "seventy-seven=77; eighty-four=84; ninety-three=93; four hundred=400; six hundred and ten=610"
        ),
    ),
}


def facts(rng: Random) -> Row:
    """One fact: for a word, or sometimes with four options."""
    task = rng.choices(list(FACTS), [len(pairs) for _, _, pairs in FACTS.values()])[0]
    grade, text, pairs = FACTS[task]
    left = rng.choice(list(pairs))
    query, answer = text.format(left), pairs[left]
    others = sorted({right for right in pairs.values() if right != answer})
    # An option that is a letter itself could not be told from the letter of an option.
    lettered = len(others) < 3 or any(len(right) == 1 for right in pairs.values())
    if lettered or rng.random() < 0.85:
        kind = "numeric" if answer.isdigit() else "contains"
        return make_row(f"facts/{task}", grade, query, answer, kind)
    options = [answer, *rng.sample(others, 3)]
    rng.shuffle(options)
    return make_row(f"facts/{task}", grade, query, "ABCD"[options.index(answer)], "choice", options)
