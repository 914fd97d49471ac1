"""FastAPI with a handler that does nothing but give back what it was sent (`server_fastapi.py PORT`)."""

import sys
from typing import Any

import uvicorn
from fastapi import FastAPI

app = FastAPI()


@app.post("/echo")
async def echo(body: dict[str, Any]) -> dict[str, Any]:
    return body


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), log_level="critical", access_log=False, loop="uvloop", http="httptools")
