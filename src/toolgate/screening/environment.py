"""Variables that make a program run, load or trust something else than what its arguments say.

For tools that take an environment beside a command. A value is not looked at: who may set the variable has the program.
"""

import re

LEADS_ASTRAY = re.compile(
    r"LD_\w+|DYLD_\w+|GIT_(?!(?:AUTHOR|COMMITTER)_(?:NAME|EMAIL|DATE)\Z|TERMINAL_PROMPT\Z)\w+|SSH_ASKPASS\w*|SVN_SSH|CVS_RSH|RSYNC_RSH"
    r"|NODE_(?!ENV\Z)\w+|NPM_CONFIG_\w+|YARN_\w+|BUN_\w+|DENO_\w+|PYTHON(?!UNBUFFERED\Z|DONTWRITEBYTECODE\Z|UTF8\Z|HASHSEED\Z)\w+"
    r"|PIP_\w+|UV_\w+|VIRTUAL_ENV|PERL\w*|RUBY(?:OPT|LIB|PATH)|GEM_\w+|BUNDLE_\w+|PHP(?:RC|_INI_SCAN_DIR)|LUA_(?:INIT|C?PATH)\w*"
    r"|JAVA_HOME|\w*JAVA_(?:TOOL_)?OPTIONS|CLASSPATH|MAVEN_\w+|GRADLE_\w+|GO(?:FLAGS|ENV|ROOT|PROXY|PATH|TOOLCHAIN)|CARGO_\w+"
    r"|RUSTC?_?(?:WRAPPER|FLAGS)|RUSTC|RUSTDOC|CC|CXX|CPP|LD|AR|MAKEFLAGS|GNUMAKEFLAGS|MAKEFILES|CMAKE_\w+|COMPILER_PATH|GCC_\w+"
    r"|PATH|PATHEXT|CDPATH|FPATH|ENV|BASH_\w+|BASHOPTS|SHELL|SHELLOPTS|IFS|PS[0-4]|PROMPT_COMMAND|ZDOTDIR|GLOBIGNORE|COMSPEC"
    r"|\w*EDITOR|VISUAL|\w*PAGER|BROWSER|LESSOPEN|LESSCLOSE|LESS|MANOPT|TAR_OPTIONS|GZIP|ZIPOPT|GREP_OPTIONS|TAPE|RSH"
    r"|HOME|USERPROFILE|APPDATA|XDG_\w+|TMUX\w*|TERMINFO\w*|TERMCAP|GCONV_PATH|LOCPATH|NLSPATH|HOSTALIASES|RES_OPTIONS|MALLOC_\w+"
    r"|GLIBC_TUNABLES|DOCKER_\w+|BUILDKIT_\w+|BUILDX_\w+|CONTAINER_HOST|KUBECONFIG|OPENSSL_\w+|SSL_CERT_\w+|SSLKEYLOGFILE|CURL_HOME"
    r"|WGETRC|INPUTRC|PRISMA_\w+|\w+_PROXY|\w*PRELOAD\w*",
    re.IGNORECASE,
)
"""By their names: loaders, start files, search paths, editors and pagers, where settings are read and whom to trust."""


def leads_astray(name: str) -> bool:
    """Whether a variable of this name decides what is run or loaded; also if it is no proper name."""
    return LEADS_ASTRAY.fullmatch(name) is not None or re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) is None
