"""InspIRCd with linked Atheme services: accounts, NickServ and SASL as on real networks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.kit.certificates import certificate
from tests.kit.irc_client import IrcClient, irc_client
from tests.kit.ircd import Ircd, inspircd
from tests.kit.patience import PATIENCE
from tests.kit.ports import free_port
from tests.kit.programs import installed, running

_LINKED = """\
<module name="spanningtree">
<module name="ssl_gnutls">
<module name="sslinfo">
<sslprofile name="tls" provider="gnutls" certfile="{pem}" keyfile="{pem}" hash="sha256"
 requestclientcert="yes">
<bind address="127.0.0.1" port="{tls_port}" type="clients" sslprofile="tls">
<bind address="127.0.0.1" port="{link_port}" type="servers">
<link name="services.test" ipaddr="127.0.0.1" allowmask="127.0.0.1" port="1" sendpass="link"
 recvpass="link">
<uline server="services.test" silent="yes">
"""

_ATHEME = """\
loadmodule "modules/protocol/inspircd";
loadmodule "modules/backend/opensex";
loadmodule "modules/crypto/posix";
loadmodule "modules/nickserv/main";
loadmodule "modules/nickserv/register";
loadmodule "modules/nickserv/identify";
loadmodule "modules/nickserv/ghost";
loadmodule "modules/nickserv/cert";
loadmodule "modules/nickserv/set_core";
loadmodule "modules/nickserv/set_pubkey";
loadmodule "modules/saslserv/main";
loadmodule "modules/saslserv/plain";
loadmodule "modules/saslserv/external";
loadmodule "modules/saslserv/ecdsa-nist256p-challenge";
serverinfo {{
  name = "services.test"; desc = "Services of a test"; numeric = "00A"; netname = "TestNet";
  recontime = 1; adminname = "t"; adminemail = "t@localhost"; registeremail = "t@localhost";
  hidehostsuffix = "test"; mta = "/bin/true"; loglevel = {{ error; }}; maxlogins = 5; maxusers = 5;
  mdlimit = 30; emaillimit = 10; emailtime = 300; auth = none; casemapping = rfc1459;
}};
uplink "inspircd.test" {{
  host = "127.0.0.1"; port = {link_port}; send_password = "link"; receive_password = "link";
}};
nickserv {{ nick = "NickServ"; user = "N"; host = "services.test"; real = "Nicks"; }};
saslserv {{ nick = "SaslServ"; user = "S"; host = "services.test"; real = "SASL"; }};
general {{ commit_interval = 5; }};
"""


@dataclass(frozen=True, slots=True)
class Services:
    """A network with a plain port (of `ircd`), a `tls_port`, and services that can be started."""

    ircd: Ircd
    tls_port: int
    folder: Path

    @asynccontextmanager
    async def running(self) -> AsyncIterator[IrcClient]:
        """Run Atheme, linked to the server; yield a client that is logged in to "Account".

        Registrations are lost when it ends.
        """
        command = [installed("atheme-services"), "-n", "-c", str(self.folder / "atheme.conf")]
        command += ["-D", str(self.folder), "-p", str(self.folder / "pid")]
        command += ["-l", str(self.folder / "log")]
        async with (
            running(*command, folder=self.folder),
            irc_client(self.ircd.port, "Account") as owner,
        ):
            # The server offers SASL only while services are linked; without cap-notify it does not
            # announce that.
            async with asyncio.timeout(PATIENCE):
                while True:
                    await owner.send("CAP LS 302")
                    if "sasl=" in (await owner.expect(r" CAP \S+ LS :(.*)"))[1]:
                        break
                    await asyncio.sleep(0.1)
            await owner.say("NickServ", "REGISTER sesame t@localhost.example")
            await owner.expect("is now registered to|is already registered")
            yield owner


@asynccontextmanager
async def services_network(folder: Path) -> AsyncIterator[Services]:
    """Run the server without services, which can be linked with `Services.running`."""
    installed("atheme-services")  # skips the test if it is missing
    tls_port, link_port = free_port(), free_port()
    pem = certificate(folder, "ircd").path
    extra = _LINKED.format(pem=pem, tls_port=tls_port, link_port=link_port)
    (folder / "atheme.conf").write_text(_ATHEME.format(link_port=link_port))
    async with inspircd(extra=extra) as ircd:
        yield Services(ircd, tls_port, folder)
