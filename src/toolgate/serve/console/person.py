"""Pages about the person who is signed in: the theme of the pages, and signing out."""

from toolgate.serve.console.page import Go, PageRequest, Pages
from toolgate.serve.http.session import end_session
from toolgate.serve.sign_in import is_own_page

pages = Pages("overview")

THEME_COOKIE = "toolgate_theme"
THEMES = ("light", "dark")
YEAR_SECONDS = 31_536_000


@pages.post("/theme", permission="own")
async def set_theme(request: PageRequest) -> Go:
    """Keeps the theme in a cookie of this browser; without one it is that of the system."""
    theme, back = request.typed("theme"), request.typed("back")
    lasts = YEAR_SECONDS if theme in THEMES else 0
    cookie = f"{THEME_COOKIE}={theme if lasts else ''}; Path=/; Max-Age={lasts}; HttpOnly; SameSite=Strict"
    return Go(back if is_own_page(back) else "/", headers={"set-cookie": cookie})


@pages.post("/sign-out", permission="own")
async def sign_out(request: PageRequest) -> Go:
    """Ends the session of this browser."""
    reply = await end_session(request)
    return Go("/", headers=dict(reply.headers or {}))
