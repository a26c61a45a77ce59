//! Which functions of libc touch files, and what is done about each of them.
//!
//! One table for the process that is about to be hooked and for an executable on disk. A program may import
//! what it likes from elsewhere; from libc it may import what is [`Class::Hooked`] or [`Class::Harmless`]
//! here, and what does not touch files.

/// What an import means for managed files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Replaced by a function of ours.
    Hooked,
    /// Touches files, but cannot reach what is in a managed one, for this reason.
    Harmless(&'static str),
    /// Would reach past the hooks, in this way.
    Refused(&'static str),
    /// Named like a file function of the table, but not in it: made after this was written.
    Unknown,
    /// Does not touch files.
    NotFiles,
}

/// Replaced. The names of one line are one function on x86-64.
pub const HOOKED: &[&str] = &[
    "open",
    "open64",
    "__open_2",
    "__open64_2",
    "creat",
    "creat64",
    "openat",
    "openat64",
    "__openat_2",
    "__openat64_2",
    "close",
    "dup",
    "dup2",
    "dup3",
    "fcntl",
    "fcntl64",
    "ioctl",
    "mmap",
    "mmap64",
    "read",
    "__read_chk",
    "readv",
    "pread",
    "pread64",
    "__pread_chk",
    "__pread64_chk",
    "preadv",
    "preadv64",
    "preadv2",
    "preadv64v2",
    "write",
    "writev",
    "pwrite",
    "pwrite64",
    "pwritev",
    "pwritev64",
    "pwritev2",
    "pwritev64v2",
    "lseek",
    "lseek64",
    "ftruncate",
    "ftruncate64",
    "truncate",
    "truncate64",
    "fsync",
    "fdatasync",
    "stat",
    "stat64",
    "lstat",
    "lstat64",
    "fstat",
    "fstat64",
    "fstatat",
    "fstatat64",
    "__xstat",
    "__xstat64",
    "__lxstat",
    "__lxstat64",
    "__fxstat",
    "__fxstat64",
    "__fxstatat",
    "__fxstatat64",
    "access",
    "unlink",
    "rename",
    "link",
    "rmdir",
    "opendir",
    "readdir",
    "readdir64",
    "closedir",
    "posix_fallocate",
    "posix_fallocate64",
    "fallocate",
    "fallocate64",
    "posix_fadvise",
    "posix_fadvise64",
    "sync_file_range",
    "copy_file_range",
    "sendfile",
    "sendfile64",
    "fopen",
    "fopen64",
    "freopen",
    "freopen64",
];

const STREAM: &str = "works on a stream that the hooked fopen has made";
const ATTRIBUTES: &str = "changes attributes of a name, no page; servers do it to sockets, logs and folders";
const FRESH_NAME: &str = "makes a name that was not there; where there is one it fails as for any file";
const FOLDER: &str = "is about folders, which are what they are";
const LINK: &str = "is about symbolic links, and a managed name is none";
const PROCESS: &str = "starts a program, which is not hooked by this";
const LOCK: &str = "locks the real file behind the descriptor";
const SYSTEM: &str = "writes back what the system has; the server syncs each file besides";
const OTHER_KIND: &str = "makes descriptors of another kind";
const LIBRARY: &str = "reads libraries, messages or system databases";
const WATCH: &str = "reports events of names and descriptors, no page";

/// Touch files or descriptors, and are left alone.
pub const HARMLESS: &[(&str, &[&str])] = &[
    (
        STREAM,
        &[
            "fclose",
            "fcloseall",
            "fflush",
            "fflush_unlocked",
            "fread",
            "fread_unlocked",
            "__fread_chk",
            "__fread_unlocked_chk",
            "fwrite",
            "fwrite_unlocked",
            "fgetc",
            "fgetc_unlocked",
            "getc",
            "getc_unlocked",
            "_IO_getc",
            "_IO_putc",
            "getw",
            "putw",
            "fgets",
            "fgets_unlocked",
            "__fgets_chk",
            "__fgets_unlocked_chk",
            "fputc",
            "fputc_unlocked",
            "putc",
            "putc_unlocked",
            "fputs",
            "fputs_unlocked",
            "getline",
            "getdelim",
            "__getdelim",
            "ungetc",
            "fseek",
            "fseeko",
            "fseeko64",
            "ftell",
            "ftello",
            "ftello64",
            "rewind",
            "fgetpos",
            "fgetpos64",
            "fsetpos",
            "fsetpos64",
            "feof",
            "feof_unlocked",
            "ferror",
            "ferror_unlocked",
            "clearerr",
            "clearerr_unlocked",
            "fileno",
            "fileno_unlocked",
            "setvbuf",
            "setbuf",
            "setbuffer",
            "setlinebuf",
            "fprintf",
            "vfprintf",
            "__fprintf_chk",
            "__vfprintf_chk",
            "fscanf",
            "vfscanf",
            "__isoc99_fscanf",
            "__isoc99_vfscanf",
            "__isoc23_fscanf",
            "__isoc23_vfscanf",
            "fwide",
            "fgetwc",
            "fputwc",
            "getwc",
            "putwc",
            "fgetws",
            "fputws",
            "ungetwc",
            "fwprintf",
            "vfwprintf",
            "__fwprintf_chk",
            "__vfwprintf_chk",
            "fwscanf",
            "flockfile",
            "funlockfile",
            "ftrylockfile",
            "__fpending",
            "__fpurge",
            "__fbufsize",
            "__freading",
            "__fwriting",
            "__freadable",
            "__fwritable",
            "__flbf",
            "__fsetlocking",
            "_flushlbf",
            "fmemopen",
            "open_memstream",
            "open_wmemstream",
            "fopencookie",
            "printf",
            "vprintf",
            "__printf_chk",
            "__vprintf_chk",
            "puts",
            "putchar",
            "putchar_unlocked",
            "getchar",
            "getchar_unlocked",
            "scanf",
            "__isoc99_scanf",
            "perror",
            "psignal",
            "__uflow",
            "__overflow",
        ],
    ),
    (
        ATTRIBUTES,
        &[
            "chmod",
            "fchmod",
            "lchmod",
            "fchmodat",
            "chown",
            "fchown",
            "lchown",
            "fchownat",
            "utime",
            "utimes",
            "lutimes",
            "futimes",
            "futimens",
            "utimensat",
            "futimesat",
            "umask",
            "setxattr",
            "lsetxattr",
            "fsetxattr",
            "getxattr",
            "lgetxattr",
            "fgetxattr",
            "listxattr",
            "llistxattr",
            "flistxattr",
            "removexattr",
            "lremovexattr",
            "fremovexattr",
            "statfs",
            "statfs64",
            "fstatfs",
            "fstatfs64",
            "statvfs",
            "statvfs64",
            "fstatvfs",
            "fstatvfs64",
            "pathconf",
            "fpathconf",
            "isatty",
        ],
    ),
    (
        FRESH_NAME,
        &[
            "mkdir",
            "mkdirat",
            "mknod",
            "mknodat",
            "__xmknod",
            "__xmknodat",
            "mkfifo",
            "mkfifoat",
            "symlink",
            "symlinkat",
            "mkstemp",
            "mkstemp64",
            "mkostemp",
            "mkostemp64",
            "mkstemps",
            "mkstemps64",
            "mkostemps",
            "mkostemps64",
            "mkdtemp",
            "tmpfile",
            "tmpfile64",
            "tmpnam",
            "tempnam",
            "mktemp",
        ],
    ),
    (
        FOLDER,
        &[
            "chdir",
            "fchdir",
            "getcwd",
            "__getcwd_chk",
            "getwd",
            "get_current_dir_name",
            "chroot",
            "rewinddir",
            "seekdir",
            "telldir",
            "dirfd",
            "alphasort",
            "alphasort64",
            "versionsort",
            "versionsort64",
            "mount",
            "umount",
            "umount2",
            "pivot_root",
        ],
    ),
    (
        LINK,
        &[
            "readlink",
            "__readlink_chk",
            "readlinkat",
            "__readlinkat_chk",
            "realpath",
            "__realpath_chk",
            "canonicalize_file_name",
        ],
    ),
    (
        PROCESS,
        &[
            "system",
            "popen",
            "pclose",
            "execl",
            "execle",
            "execlp",
            "execv",
            "execve",
            "execvp",
            "execvpe",
            "fexecve",
            "execveat",
            "posix_spawn",
            "posix_spawnp",
            "posix_spawn_file_actions_addopen",
            "posix_spawn_file_actions_adddup2",
            "posix_spawn_file_actions_addclose",
        ],
    ),
    (LOCK, &["flock"]),
    (SYSTEM, &["sync", "syncfs", "msync", "munmap", "mremap", "madvise", "posix_madvise", "mincore"]),
    (
        OTHER_KIND,
        &[
            "pipe",
            "pipe2",
            "socket",
            "socketpair",
            "accept",
            "accept4",
            "eventfd",
            "signalfd",
            "timerfd_create",
            "epoll_create",
            "epoll_create1",
            "memfd_create",
            "shm_open",
            "shm_unlink",
            "sem_open",
            "sem_unlink",
            "mq_open",
            "mq_unlink",
            "posix_openpt",
            "getpt",
            "recv",
            "recvfrom",
            "recvmsg",
            "recvmmsg",
            "__recv_chk",
            "__recvfrom_chk",
            "send",
            "sendto",
            "sendmsg",
            "sendmmsg",
            "eventfd_read",
            "eventfd_write",
            "openpty",
        ],
    ),
    (
        LIBRARY,
        &[
            "dlopen",
            "dlmopen",
            "dlclose",
            "openlog",
            "closelog",
            "setlocale",
            "newlocale",
            "bindtextdomain",
            "catopen",
            "catclose",
            "iconv_open",
            "backtrace_symbols_fd",
            "setmntent",
            "getmntent",
            "getmntent_r",
            "endmntent",
            "getpwnam",
            "getpwuid",
            "getpwuid_r",
            "getgrnam",
        ],
    ),
    (
        WATCH,
        &[
            "select",
            "pselect",
            "poll",
            "ppoll",
            "__poll_chk",
            "__fdelt_chk",
            "epoll_ctl",
            "epoll_wait",
            "epoll_pwait",
            "inotify_init",
            "inotify_init1",
            "inotify_add_watch",
            "inotify_rm_watch",
            "fanotify_init",
            "fanotify_mark",
            "ttyname",
            "ttyname_r",
        ],
    ),
    (
        "reads and writes past libc: the server must not run with io_method = io_uring, which is refused at start",
        &["io_uring_queue_init", "io_uring_queue_init_params", "io_uring_queue_init_mem", "io_uring_submit"],
    ),
];

const RAW: &str = "makes system calls that no hook sees";
const INSIDE: &str = "does file operations inside libc, which no hook sees";
const LISTS: &str = "lists or removes files inside libc, and would see what is hidden";
const PATHS: &str = "works on names that the hooks do not watch in this form";

/// Would reach past the hooks. No supported server imports them.
pub const REFUSED: &[(&str, &[&str])] = &[
    (RAW, &["syscall"]),
    (
        INSIDE,
        &[
            "fdopen",
            "_IO_fdopen",
            "dprintf",
            "vdprintf",
            "__dprintf_chk",
            "__vdprintf_chk",
            "aio_read",
            "aio_read64",
            "aio_write",
            "aio_write64",
            "aio_fsync",
            "aio_fsync64",
            "aio_cancel",
            "aio_cancel64",
            "aio_error",
            "aio_error64",
            "aio_return",
            "aio_return64",
            "aio_suspend",
            "aio_suspend64",
            "lio_listio",
            "lio_listio64",
            "splice",
            "tee",
            "vmsplice",
            "readahead",
            "process_vm_readv",
            "lockf",
            "lockf64",
            "open_by_handle_at",
            "name_to_handle_at",
            "close_range",
            "closefrom",
            "remap_file_pages",
            "putpmsg",
            "getpmsg",
            "remove",
        ],
    ),
    (
        LISTS,
        &[
            "scandir",
            "scandir64",
            "scandirat",
            "scandirat64",
            "glob",
            "glob64",
            "globfree",
            "ftw",
            "ftw64",
            "nftw",
            "nftw64",
            "fts_open",
            "fts64_open",
            "fts_read",
            "fts64_read",
            "getdents64",
            "getdirentries",
            "getdirentries64",
            "readdir_r",
            "readdir64_r",
            "fdopendir",
        ],
    ),
    (PATHS, &["statx", "faccessat", "eaccess", "euidaccess", "unlinkat", "renameat", "renameat2", "linkat"]),
];

/// Functions without which a program does not do its file work through its own imports: of each line at least
/// one must be there. A server that is linked otherwise (statically, or with its code in a library) has none.
pub const NEEDED: &[&[&str]] = &[
    &["open", "open64", "__open_2", "__open64_2"],
    &["close"],
    &["pread", "pread64", "__pread_chk", "__pread64_chk"],
    &["pwrite", "pwrite64"],
    &["lseek", "lseek64"],
    &["ftruncate", "ftruncate64"],
    &["fsync", "fdatasync"],
    &["stat", "stat64", "__xstat", "__xstat64"],
    &["unlink"],
];

/// Suffixes by which libc tells variants of a function apart.
const SUFFIXES: &[&str] =
    &["_chk", "_2", "_nocancel", "_unlocked", "_time64", "64", "at", "v", "2", "3", "4", "_r"];

/// Stems of the functions that open, read, write, change or list files.
const STEMS: &[&str] = &[
    "open",
    "creat",
    "read",
    "write",
    "pread",
    "pwrite",
    "lseek",
    "seek",
    "truncate",
    "ftruncate",
    "fsync",
    "fdatasync",
    "sync",
    "stat",
    "lstat",
    "fstat",
    "xstat",
    "lxstat",
    "fxstat",
    "access",
    "faccess",
    "unlink",
    "remove",
    "rename",
    "link",
    "rmdir",
    "opendir",
    "fdopendir",
    "readdir",
    "closedir",
    "dir",
    "posix_fallocate",
    "fallocate",
    "posix_fadvise",
    "fadvise",
    "sync_file_range",
    "copy_file_range",
    "sendfile",
    "splice",
    "tee",
    "vmsplice",
    "fopen",
    "freopen",
    "fdopen",
    "mmap",
    "dup",
    "fcntl",
    "ioctl",
    "close",
    "readahead",
    "getdents",
    "cachestat",
    "statmount",
    "listmount",
    "mseal",
    "exchange_range",
];

/// What the import of `name` means.
pub fn class_of(name: &str) -> Class {
    if HOOKED.contains(&name) {
        return Class::Hooked;
    }
    let among = |table: &[(&'static str, &[&str])]| {
        table.iter().find(|(_, names)| names.contains(&name)).map(|(reason, _)| *reason)
    };
    if let Some(reason) = among(HARMLESS) {
        return Class::Harmless(reason);
    }
    if let Some(reason) = among(REFUSED) {
        return Class::Refused(reason);
    }
    if name.starts_with("aio_") || is_variant_of_file_function(name) {
        Class::Unknown
    } else {
        Class::NotFiles
    }
}

fn is_variant_of_file_function(name: &str) -> bool {
    let mut stem = name.trim_start_matches('_');
    loop {
        if STEMS.contains(&stem) {
            return true;
        }
        let Some(shorter) = SUFFIXES.iter().find_map(|suffix| stem.strip_suffix(suffix)) else {
            return false;
        };
        stem = shorter;
    }
}

/// Why a program cannot be hooked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Problem {
    /// It imports a function that would reach past the hooks.
    Refused {
        /// The import.
        name: String,
        /// How.
        reason: &'static str,
    },
    /// It imports a file function that this table does not know.
    Unknown {
        /// The import.
        name: String,
    },
    /// It imports none of these.
    Missing {
        /// Names of one function.
        names: &'static [&'static str],
    },
}

impl Problem {
    /// What was found.
    pub fn found(&self) -> String {
        match self {
            Problem::Refused { name, reason } => format!("{name} is imported, and {name} {reason}"),
            Problem::Unknown { name } => {
                format!("{name} is imported, which is named like a file function and is not in the table")
            }
            Problem::Missing { names } => format!("none of {} is imported", names.join(", ")),
        }
    }

    /// What should have been.
    pub fn expected(&self) -> &'static str {
        match self {
            Problem::Refused { .. } | Problem::Unknown { .. } => {
                "only imports that are hooked, harmless, or do not touch files"
            }
            Problem::Missing { .. } => "file functions imported from libc by the executable itself",
        }
    }

    /// What to do.
    pub fn next_step(&self) -> &'static str {
        match self {
            Problem::Refused { .. } | Problem::Unknown { .. } => {
                "run a server of a supported build (PostgreSQL 15 to 18 of Debian or apt.postgresql.org), or a newer \
                 pgshrink that knows this import; keep compressed tablespaces away from this build until then"
            }
            Problem::Missing { .. } => {
                "run a server that is linked dynamically with glibc and has its code in the executable"
            }
        }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}; expected: {}; next step: {}", self.found(), self.expected(), self.next_step())
    }
}

/// What is wrong with a program that imports `names`. `despite`: imports that the caller answers for.
pub fn check<'a>(names: impl Iterator<Item = &'a str> + Clone, despite: &[&str]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for name in names.clone().filter(|name| !despite.contains(name)) {
        let problem = match class_of(name) {
            Class::Refused(reason) => Problem::Refused { name: name.to_owned(), reason },
            Class::Unknown => Problem::Unknown { name: name.to_owned() },
            Class::Hooked | Class::Harmless(_) | Class::NotFiles => continue,
        };
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }
    for group in NEEDED {
        if !names.clone().any(|name| group.contains(&name)) {
            problems.push(Problem::Missing { names: group });
        }
    }
    problems
}
