//! The client programs of PostgreSQL 15 to 18: which options take a value, and which values are connection
//! strings.
//!
//! The options are the union over those releases. A program that is not here is treated as unknown: only URIs
//! and strings with `compression=` are recognized among its arguments.

/// One client program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// As for `getopt`: a colon after a letter that takes a value. `~` after one that takes a value in some
    /// releases: pgbench's `-d` is the database since 17 and was `--debug` before.
    pub(crate) short: &'static str,
    /// Long names; `=` after one that takes a value, `?` after one that may take one behind `=`.
    pub(crate) long: &'static str,
    /// Which words that are no options are database names, and so may be connection strings.
    pub(crate) positional: Positional,
    pub(crate) order: Order,
}

/// Which words that are no options name a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Positional {
    None,
    /// The first, unless an option named the database already.
    First,
    All,
}

/// What wins when both `-h` and the connection string name a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    ConninfoWins,
    FlagsWin,
}

impl Program {
    /// The program that a command runs, by the last part of its path.
    pub(crate) fn find(command: &str) -> Option<&'static Self> {
        let name = command.rsplit('/').next().unwrap_or(command);
        PROGRAMS.iter().find(|program| program.name == name)
    }

    /// Whether the value of this option may be a connection string.
    pub(crate) fn takes_conninfo(&self, option: &str) -> bool {
        match option {
            "dbname" | "maintenance-db" | "source-server" | "publisher-server" => true,
            "d" => !matches!(self.name, "pg_amcheck" | "pg_createsubscriber"),
            "P" => self.name == "pg_createsubscriber",
            _ => false,
        }
    }

    /// Whether this option names the host.
    pub(crate) fn takes_host(&self, option: &str) -> bool {
        matches!(option, "h" | "host") || self.name == "oid2name" && option == "H"
    }

    /// Whether this option names the port.
    pub(crate) fn takes_port(&self, option: &str) -> bool {
        let other = matches!(self.name, "pg_createsubscriber" | "pg_rewind");
        matches!(option, "p" | "port") && !other
    }

    /// Whether it only asks if a server is there: a stand-in would always answer.
    pub(crate) fn is_probe(&self) -> bool {
        self.name == "pg_isready"
    }
}

pub(crate) static PROGRAMS: &[Program] = &[
    Program {
        name: "clusterdb",
        short: "h:p:U:wWeqd:at:v",
        long: "all dbname= echo quiet table= verbose version help host= port= username= no-password password \
              maintenance-db=",
        positional: Positional::First,
        order: Order::ConninfoWins,
    },
    Program {
        name: "createdb",
        short: "h:p:U:wWeO:D:T:E:l:S:",
        long: "tablespace= echo encoding= locale= lc-collate= lc-ctype= icu-locale= locale-provider= owner= \
              strategy= template= version help host= port= username= no-password password maintenance-db= \
              icu-rules= builtin-locale=",
        positional: Positional::None,
        order: Order::ConninfoWins,
    },
    Program {
        name: "createuser",
        short: "h:p:U:g:wWedDsSrRiIlLc:PEa:m:v:",
        long: "connection-limit= createdb no-createdb echo role= inherit no-inherit login no-login pwprompt \
              createrole no-createrole superuser no-superuser version interactive replication no-replication \
              help host= port= username= no-password password with-admin= member-of= with-member= valid-until= \
              bypassrls no-bypassrls",
        positional: Positional::None,
        order: Order::ConninfoWins,
    },
    Program {
        name: "dropdb",
        short: "h:p:U:wWeif",
        long: "echo force interactive version if-exists help host= port= username= no-password password \
              maintenance-db=",
        positional: Positional::None,
        order: Order::ConninfoWins,
    },
    Program {
        name: "dropuser",
        short: "h:p:U:wWei",
        long: "echo interactive version if-exists help host= port= username= no-password password",
        positional: Positional::None,
        order: Order::ConninfoWins,
    },
    Program {
        name: "oid2name",
        short: "d:f:h:H:io:p:qsSt:U:x",
        long: "filenode= indexes oid= quiet tablespaces system-objects table= version extended help dbname= \
              host= port= username=",
        positional: Positional::None,
        order: Order::ConninfoWins,
    },
    Program {
        name: "pg_amcheck",
        short: "ad:D:eh:Hi:I:j:p:Pr:R:s:S:t:T:U:wWv",
        long: "all database= exclude-database= index= exclude-index= relation= exclude-relation= schema= \
              exclude-schema= table= exclude-table= no-dependent-indexes no-dependent-toast no-strict-names \
              exclude-toast-pointers on-error-stop skip= startblock= endblock= heapallindexed parent-check \
              rootdescend host= port= username= no-password password maintenance-db= echo jobs= progress \
              verbose version install-missing help checkunique",
        positional: Positional::First,
        order: Order::ConninfoWins,
    },
    Program {
        name: "pg_basebackup",
        short: "CD:F:r:RS:t:T:X:l:nNzZ:d:c:h:p:U:s:wWkvPi:",
        long: "pgdata= format= max-rate= write-recovery-conf target= tablespace-mapping= waldir= wal-method= \
              gzip compress= checkpoint= create-slot label= no-clean no-sync progress slot= verbose version \
              manifest-checksums= manifest-force-encode no-estimate-size no-manifest no-slot \
              no-verify-checksums help dbname= host= port= status-interval= username= no-password password \
              incremental= sync-method=",
        positional: Positional::None,
        order: Order::FlagsWin,
    },
    Program {
        name: "pg_createsubscriber",
        short: "ad:D:np:P:s:t:TU:v",
        long: "all database= pgdata= dry-run subscriber-port= publisher-server= socketdir= recovery-timeout= \
              enable-two-phase subscriber-username= verbose clean= config-file= publication= replication-slot= \
              subscription= version help",
        positional: Positional::None,
        order: Order::ConninfoWins,
    },
    Program {
        name: "pg_dump",
        short: "abBcCd:e:E:f:F:h:j:n:N:Op:RsS:t:T:U:vwWxZ:X",
        long: "file= format= jobs= verbose version compress= lock-wait-timeout= no-sync help data-only blobs \
              no-blobs clean create extension= encoding= schema= exclude-schema= no-owner schema-only \
              superuser= table= exclude-table= no-privileges binary-upgrade column-inserts \
              disable-dollar-quoting disable-triggers enable-row-security exclude-table-data= \
              extra-float-digits= if-exists include-foreign-data= inserts load-via-partition-root no-comments \
              no-publications no-security-labels no-subscriptions no-table-access-method no-tablespaces \
              no-toast-compression no-unlogged-table-data on-conflict-do-nothing quote-all-identifiers \
              restrict-key= rows-per-insert= section= serializable-deferrable snapshot= strict-names \
              use-set-session-authorization dbname= host= port= username= no-password password role= \
              large-objects no-large-objects exclude-table-and-children= exclude-table-data-and-children= \
              table-and-children= sync-method= exclude-extension= filter= no-data no-policies no-schema \
              no-statistics sequence-data statistics statistics-only",
        positional: Positional::First,
        order: Order::ConninfoWins,
    },
    Program {
        name: "pg_dumpall",
        short: "acd:E:f:gh:l:Op:rsS:tU:vwWx",
        long: "file= verbose version lock-wait-timeout= help data-only clean encoding= globals-only no-owner \
              roles-only schema-only superuser= tablespaces-only no-privileges binary-upgrade column-inserts \
              disable-dollar-quoting disable-triggers exclude-database= extra-float-digits= if-exists inserts \
              load-via-partition-root no-comments no-publications no-role-passwords no-security-labels \
              no-subscriptions no-sync no-table-access-method no-tablespaces no-toast-compression \
              no-unlogged-table-data on-conflict-do-nothing quote-all-identifiers restrict-key= \
              rows-per-insert= use-set-session-authorization dbname= host= database= port= username= \
              no-password password role= filter= no-data no-policies no-schema no-statistics sequence-data \
              statistics statistics-only",
        positional: Positional::None,
        order: Order::FlagsWin,
    },
    Program {
        name: "pg_isready",
        short: "d:h:p:qt:U:",
        long: "dbname= quiet version help host= port= timeout= username=",
        positional: Positional::None,
        order: Order::ConninfoWins,
    },
    Program {
        name: "pg_receivewal",
        short: "D:d:E:h:p:U:s:S:nwWvZ:",
        long: "directory= endpos= if-not-exists no-loop no-sync status-interval= slot= synchronous verbose \
              version compress= help dbname= host= port= username= no-password password create-slot drop-slot",
        positional: Positional::None,
        order: Order::FlagsWin,
    },
    Program {
        name: "pg_recvlogical",
        short: "E:f:F:nvtd:h:p:U:wWI:o:P:s:S:",
        long: "create-slot drop-slot start endpos= file= fsync-interval= if-not-exists startpos= no-loop \
              option= plugin= status-interval= slot= two-phase verbose version help dbname= host= port= \
              username= no-password password enable-failover enable-two-phase",
        positional: Positional::None,
        order: Order::FlagsWin,
    },
    Program {
        name: "pg_restore",
        short: "acCd:ef:F:h:I:j:lL:n:N:Op:P:RsS:t:T:U:vwWx1",
        long: "dbname= file= format= list verbose version help data-only clean create exit-on-error index= \
              jobs= use-list= schema= exclude-schema= no-owner function= schema-only superuser= table= \
              trigger= no-privileges single-transaction disable-triggers enable-row-security if-exists \
              no-comments no-data-for-failed-tables no-publications no-security-labels no-subscriptions \
              no-table-access-method no-tablespaces restrict-key= section= strict-names \
              use-set-session-authorization host= port= username= no-password password role= filter= no-data \
              no-policies no-schema no-statistics statistics statistics-only transaction-size=",
        positional: Positional::None,
        order: Order::ConninfoWins,
    },
    Program {
        name: "pg_rewind",
        short: "cD:nNPR",
        long: "restore-target-wal target-pgdata= source-pgdata= source-server= dry-run no-sync progress \
              write-recovery-conf config-file= debug no-ensure-shutdown version help sync-method=",
        positional: Positional::None,
        order: Order::ConninfoWins,
    },
    Program {
        name: "pgbench",
        short: "iI:h:nvp:d~qb:SNc:j:Crs:t:T:U:lf:D:F:M:P:R:L:",
        long: "initialize init-steps= fillfactor= no-vacuum quiet scale= foreign-keys index-tablespace= \
              partition-method= partitions= tablespace= unlogged-tables builtin= file= skip-some-updates \
              select-only client= connect define= jobs= log latency-limit= protocol= progress= \
              report-per-command rate= transactions= time= vacuum-all aggregate-interval= failures-detailed \
              log-prefix= max-tries= progress-timestamp random-seed= sampling-rate= show-script= \
              verbose-errors debug host= port= username= version help exit-on-abort dbname=",
        positional: Positional::First,
        order: Order::ConninfoWins,
    },
    Program {
        name: "psql",
        short: "aAbc:d:eEf:F:h:HlL:no:p:P:qR:sStT:U:v:VwWxXz?01",
        long: "command= dbname= file= list set= variable= version no-psqlrc single-transaction help? echo-all \
              echo-errors echo-queries echo-hidden log-file= no-readline output= quiet single-step single-line \
              no-align csv field-separator= html pset= variable= record-separator= tuples-only table-attr= \
              expanded field-separator-zero record-separator-zero host= port= username= no-password password",
        positional: Positional::First,
        order: Order::ConninfoWins,
    },
    Program {
        name: "reindexdb",
        short: "h:p:U:wWeqS:d:ast:i:j:v",
        long: "all concurrently dbname= echo index= jobs= quiet system schema= table= tablespace= verbose \
              version help host= port= username= no-password password maintenance-db=",
        positional: Positional::First,
        order: Order::ConninfoWins,
    },
    Program {
        name: "vacuumdb",
        short: "h:p:U:wWeqd:zZFat:fvj:P:n:N:",
        long: "all dbname= disable-page-skipping echo full freeze force-index-cleanup jobs= min-mxid-age= \
              min-xid-age= no-index-cleanup no-process-toast no-truncate parallel= quiet skip-locked table= \
              verbose version analyze analyze-only analyze-in-stages help host= port= username= no-password \
              password maintenance-db= buffer-usage-limit= no-process-main schema= exclude-schema= \
              missing-stats-only",
        positional: Positional::First,
        order: Order::ConninfoWins,
    },
    Program {
        name: "vacuumlo",
        short: "h:l:np:U:vwW",
        long: "limit= dry-run verbose version help host= port= username= no-password password",
        positional: Positional::All,
        order: Order::ConninfoWins,
    },
];
