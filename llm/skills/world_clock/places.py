"""Time zones by common names: cities, countries, abbreviations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, tzinfo
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

# Zones, each with names that the IANA time zone database does not have: large cities, countries
# with a single zone, abbreviations.
_ZONE_NAMES = """
Africa/Cairo: egypt | Africa/Johannesburg: south africa, cape town, durban, pretoria
Africa/Lagos: nigeria, abuja | Africa/Nairobi: kenya | Africa/Casablanca: morocco, marrakesh
Africa/Addis_Ababa: ethiopia | Africa/Accra: ghana | Africa/Tunis: tunisia
America/Argentina/Buenos_Aires: argentina | America/Bogota: colombia | America/Lima: peru
America/Chicago: houston, dallas, austin, san antonio, minneapolis, new orleans, st louis, texas,
    central time, cst, cdt, ct, us central, milwaukee, nashville, kansas city
America/Denver: salt lake city, mountain time, mst, mdt, colorado, us mountain, albuquerque
America/Los_Angeles: la, l.a., california, san francisco, sf, seattle, portland, san diego,
    las vegas, san jose, silicon valley, pacific time, pst, pdt, pt, us pacific, sacramento
America/New_York: nyc, ny, new york city, boston, washington, washington dc, washington d.c.,
    miami, philadelphia, atlanta, florida, orlando, eastern time, est, edt, et, us eastern,
    baltimore, cleveland, pittsburgh | America/Toronto: ottawa, ontario | America/Montreal: quebec
America/Edmonton: calgary, alberta | America/Vancouver: british columbia
America/Santiago: chile | America/Caracas: venezuela | America/Sao_Paulo: são paulo, rio,
    rio de janeiro, brasilia, brasília | America/Montevideo: uruguay | America/Havana: cuba
America/Phoenix: arizona | Pacific/Honolulu: hawaii | America/Anchorage: alaska
America/Halifax: nova scotia | Asia/Shanghai: china, beijing, shenzhen, guangzhou, wuhan, peking
Asia/Hong_Kong: hongkong, hkt | Asia/Tokyo: japan, osaka, kyoto, tokio, jst, yokohama
Asia/Seoul: south korea, korea, kst, busan | Asia/Kolkata: india, delhi, new delhi, mumbai,
    bangalore, bengaluru, chennai, hyderabad, bombay, pune | Asia/Karachi: pakistan, lahore
Asia/Dhaka: bangladesh | Asia/Bangkok: thailand | Asia/Ho_Chi_Minh: vietnam, hanoi
Asia/Singapore: sgt | Asia/Kuala_Lumpur: malaysia | Asia/Manila: philippines | Asia/Taipei: taiwan
Asia/Jakarta: java | Asia/Makassar: bali | Asia/Dubai: uae, abu dhabi, united arab emirates
Asia/Tehran: iran | Asia/Baghdad: iraq | Asia/Jerusalem: israel, tel aviv | Asia/Riyadh:
    saudi arabia | Asia/Kathmandu: nepal | Asia/Colombo: sri lanka | Asia/Beirut: lebanon
Asia/Yerevan: armenia | Asia/Almaty: astana
Australia/Sydney: aest, aedt, canberra | Australia/Melbourne: victoria | Australia/Perth: awst
Australia/Brisbane: queensland | Pacific/Auckland: new zealand, wellington, nzst, nzdt
Europe/Amsterdam: netherlands, the netherlands, holland, rotterdam, the hague
Europe/Athens: greece, athen | Europe/Belgrade: serbia | Europe/Berlin: germany, munich, hamburg,
    frankfurt, cologne, münchen, köln, deutschland, stuttgart, düsseldorf, leipzig, cet, cest, mez,
    mesz | Europe/Brussels: belgium, brüssel, antwerp | Europe/Bucharest: romania
Europe/Budapest: hungary | Europe/Copenhagen: denmark, kopenhagen | Europe/Dublin: ireland
Europe/Helsinki: finland, eet, eest | Europe/Istanbul: turkey, ankara | Europe/Kiev: ukraine
Europe/Lisbon: portugal, porto, lissabon, wet | Europe/London: uk, england, britain, scotland,
    edinburgh, manchester, great britain, united kingdom, bst, birmingham, glasgow, liverpool,
    wales, cardiff | Europe/Madrid: spain, barcelona, sevilla, valencia
Europe/Moscow: moskau, msk, st petersburg, saint petersburg | Europe/Oslo: norway
Europe/Paris: france, lyon, marseille, nice | Europe/Prague: czechia, czech republic, prag
Europe/Rome: italy, milan, rom, milano, naples, turin, florence, venice | Europe/Sofia: bulgaria
Europe/Stockholm: sweden, gothenburg | Europe/Vienna: austria, wien, graz, salzburg, österreich
Europe/Warsaw: poland, krakow, kraków, warschau | Europe/Zurich: switzerland, geneva, zürich, bern,
    basel, genf, schweiz | Europe/Zagreb: croatia | Europe/Vilnius: lithuania | Europe/Riga: latvia
Europe/Tallinn: estonia | Europe/Bratislava: slovakia | Europe/Ljubljana: slovenia
Atlantic/Reykjavik: iceland
"""
_WITH_COUNTRY = re.compile(r"[^,]+, ?[^\W\d_]+(?: [^\W\d_]+)?")
_TIME_OF = re.compile(r" (?:time|zeit)(?: ?zone)?$|^the ")


_COUNTRIES = frozenset(
    [
        "australia",
        "usa",
        "us",
        "america",
        "canada",
        "brazil",
        "brasil",
        "russia",
        "mexico",
        "indonesia",
        "china",
        "india",
        "japan",
        "germany",
        "france",
        "spain",
        "italy",
        "england",
        "uk",
        "scotland",
        "ireland",
    ]
)
"""Countries that may follow the name of a city, including those with several zones."""


def zone_of(name: str) -> tzinfo | None:
    """Return the time zone of a city, a country with a single zone, an abbreviation or an IANA
    name, in any case; None if it is unknown."""
    key = " ".join(name.lower().replace("_", " ").strip(" ?.!,").split())
    city = key.partition(",")[0] if _WITH_COUNTRY.fullmatch(key) else key
    # "sydney australia": drop the country after a city
    first, _, country = key.rpartition(" ")
    before = first if country in _zones() or country in _COUNTRIES else key
    for spelled in (key, _TIME_OF.sub("", key), city, before):
        if spelled in ("utc", "gmt", "zulu", "z"):
            return UTC
        if zone := _zones().get(spelled):
            return ZoneInfo(zone)
    return None


def name_of(zone: tzinfo) -> str:
    """Return the IANA name of a time zone, "UTC" if it has none."""
    return zone.key if isinstance(zone, ZoneInfo) else "UTC"


def zone_name(name: str) -> str | None:
    """Return the IANA name of the time zone that `zone_of` finds for `name`, None if unknown."""
    zone = zone_of(name)
    return name_of(zone) if zone else None


@cache
def _zones() -> Mapping[str, str]:
    """Return the IANA name of each zone by full name, by city and by the names in `_ZONE_NAMES`,
    all in lower case; of several zones for one city the alphabetically first."""
    names = sorted(available_timezones() - {"localtime", "Factory"}, reverse=True)
    cities = {
        name.rpartition("/")[2].lower().replace("_", " "): name
        for name in names
        if "/" in name and not name.startswith(("Etc/", "SystemV/", "US/", "posix/", "right/"))
    }
    whole = {name.lower().replace("_", " "): name for name in names if "/" in name}
    more: dict[str, str] = {}
    for line in re.sub(r"\n\s+", " ", _ZONE_NAMES).replace("|", "\n").strip().split("\n"):
        zone, _, listed = line.partition(":")
        more |= {place.strip(): zone.strip() for place in listed.split(",")}
    # Zones that this system's database does not have are left out, as ZoneInfo would raise.
    known = set(names)
    return cities | whole | {place: zone for place, zone in more.items() if zone in known}
