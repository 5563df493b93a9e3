"""Mail to the staff: a refund waits for them."""

import os
import smtplib
from email.message import EmailMessage
from pathlib import Path

from pydantic import BaseModel, Field, SecretStr

from amoxi_py import RunEvent, on, settings, singleton

OUTBOX = Path("data/mail")


@settings("mail")
class MailSettings(BaseModel):
    """Where mail goes; without a host it is put into files."""

    staff: list[str] = Field(min_length=1)
    sender: str = "desk@shop.example"
    desk_url: str = "http://localhost:8080/desk"
    host: str | None = None
    port: int = 587
    user: str | None = None
    password: SecretStr | None = None


@singleton
class Mailer:
    """Sends mail. What is sent again with the same key has the same Message-ID, of which a mailbox keeps one."""

    def __init__(self, settings: MailSettings) -> None:
        self.settings = settings

    def send(self, subject: str, text: str, key: str) -> None:
        """Send a mail to the staff; the key tells which one it is."""
        mail = EmailMessage()
        mail["From"], mail["To"], mail["Subject"] = self.settings.sender, ", ".join(self.settings.staff), subject
        mail["Message-ID"] = f"<{key}@{self.settings.sender.rpartition('@')[2]}>"
        mail.set_content(text)
        if self.settings.host is None:
            self._put(mail, OUTBOX / f"{key}.eml")
        else:
            self._hand_over(mail, self.settings.host)

    def _hand_over(self, mail: EmailMessage, host: str) -> None:
        with smtplib.SMTP(host, self.settings.port, timeout=20) as server:
            if self.settings.user is not None and self.settings.password is not None:
                server.starttls()
                server.login(self.settings.user, self.settings.password.get_secret_value())
            server.send_message(mail)

    def _put(self, mail: EmailMessage, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        half = file.with_suffix(".part")
        half.write_bytes(bytes(mail))
        os.replace(half, file)


@on("approval.requested")
def tell_staff(event: RunEvent, mailer: Mailer) -> None:
    """Tell the staff of a refund that waits. This is called at least once, so the call's id is the mail's."""
    if event.data["tool"] != "refund_order":
        return
    order_id, customer = event.data["arguments"]["order_id"], event.principal.name
    text = f"{customer} asks for a refund of order {order_id}.\n\nDecide here: {mailer.settings.desk_url}\n"
    mailer.send(f"Refund of {order_id}?", text, event.data["call_id"])
