//! Which setting of several a relation's files follow.
//!
//! The node's own setting (`cfs.node_compression`) comes first, then the label of the table or of the nearest
//! partitioned table above it, the database's label, and the tablespace's setting.

use pgshrink_codec::Choice;

use crate::convert::{FileForm, FormNow, SMALL_PAGES};
use crate::setting::Setting;

/// What says how a relation's files are to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// `cfs.node_compression`.
    Node,
    /// The table's label.
    Relation,
    /// The label of a partitioned table above it.
    Parent,
    /// The database's label.
    Database,
    /// The tablespace's setting.
    Tablespace,
    /// Nothing: plain.
    Nothing,
}

/// How a relation's files are to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// As they are.
    Leave,
    /// Plain.
    Plain,
    /// Containers, of this algorithm and level; `None`: their tablespace's.
    Compressed(Option<Choice>),
}

/// What there is to choose from. A label that is there and means nothing to this version is `Some(None)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// The node's.
    pub node: Option<Setting>,
    /// The table's own label.
    pub relation: Option<Option<Setting>>,
    /// The label of the nearest partitioned table above it that has one.
    pub parent: Option<Option<Setting>>,
    /// The database's label.
    pub database: Option<Option<Setting>>,
    /// The tablespace's.
    pub tablespace: Option<Setting>,
}

impl Settings {
    /// What is in force, and what says so. `None`: it is a label that this version does not understand.
    pub fn in_force(&self) -> (Option<Setting>, Source) {
        let from = |setting: Option<Option<Setting>>, source| setting.map(|setting| (setting, source));
        from(self.node.map(Some), Source::Node)
            .or_else(|| from(self.relation, Source::Relation))
            .or_else(|| from(self.parent, Source::Parent))
            .or_else(|| from(self.database, Source::Database))
            .or_else(|| from(self.tablespace.map(Some), Source::Tablespace))
            .unwrap_or((Some(Setting::PLAIN), Source::Nothing))
    }

    /// How the files are to be.
    ///
    /// * A label that is not understood changes nothing.
    /// * A tablespace whose setting is `none` leaves files as they are: that is what its documentation says of new
    ///   files and old ones.
    pub fn wanted(&self) -> Wanted {
        match self.in_force() {
            (None, _) => Wanted::Leave,
            (Some(Setting { compression: None, .. }), Source::Tablespace) => Wanted::Leave,
            (Some(Setting { compression: Some(_), .. }), Source::Tablespace) => Wanted::Compressed(None),
            (Some(Setting { compression: None, .. }), _) => Wanted::Plain,
            (Some(Setting { compression, .. }), _) => Wanted::Compressed(compression),
        }
    }
}

/// What is to be done about a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lacks {
    /// Nothing.
    Nothing,
    /// It is to begin its way to a container.
    Compression,
    /// It is to begin its way back.
    Return,
    /// Its pages are to be written in another way from now on.
    Choice,
}

impl Wanted {
    /// Compares a file with what is wanted of it. Small files stay plain, and encrypted ones encrypted. What is on its
    /// way goes on where nothing is wanted any more.
    pub fn lacks(self, file: &FileForm) -> Lacks {
        match (self, file.form) {
            (Wanted::Plain, FormNow::Compressing | FormNow::Compressed | FormNow::Returned)
            | (Wanted::Leave, FormNow::Returned)
                if !file.is_encrypted =>
            {
                Lacks::Return
            }
            (Wanted::Leave, _) => Lacks::Nothing,
            (Wanted::Plain, _) => Lacks::Nothing,
            (Wanted::Compressed(_), FormNow::Plain) if file.pages <= SMALL_PAGES => Lacks::Nothing,
            (Wanted::Compressed(_), FormNow::Plain | FormNow::Decompressing | FormNow::Returned) => {
                Lacks::Compression
            }
            (Wanted::Compressed(choice), _) if choice != file.choice => Lacks::Choice,
            (Wanted::Compressed(_), _) => Lacks::Nothing,
        }
    }

    /// Whether a file has the form that is wanted of it, and is not on its way to it.
    pub fn is_met_by(self, file: &FileForm) -> bool {
        let is_under_way = !matches!(file.form, FormNow::Plain | FormNow::Compressed);
        self.lacks(file) == Lacks::Nothing && (!is_under_way || self == Wanted::Leave)
    }
}

impl Source {
    /// In a view.
    pub fn name(self) -> &'static str {
        match self {
            Source::Node => "node",
            Source::Relation => "relation",
            Source::Parent => "partitioned table",
            Source::Database => "database",
            Source::Tablespace => "tablespace",
            Source::Nothing => "nothing",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(text: &str) -> Setting {
        text.parse().unwrap()
    }

    fn compressed(text: &str) -> Wanted {
        Wanted::Compressed(setting(text).compression)
    }

    #[test]
    fn the_nearest_setting_is_in_force() {
        let mut settings = Settings::default();
        assert_eq!((settings.wanted(), settings.in_force().1), (Wanted::Plain, Source::Nothing));
        settings.tablespace = Some(setting("lz4"));
        assert_eq!(
            (settings.wanted(), settings.in_force().1),
            (Wanted::Compressed(None), Source::Tablespace)
        );
        settings.database = Some(Some(setting("zstd:2")));
        assert_eq!((settings.wanted(), settings.in_force().1), (compressed("zstd:2"), Source::Database));
        settings.parent = Some(Some(setting("zstd:3")));
        assert_eq!((settings.wanted(), settings.in_force().1), (compressed("zstd:3"), Source::Parent));
        settings.relation = Some(Some(setting("none")));
        assert_eq!((settings.wanted(), settings.in_force().1), (Wanted::Plain, Source::Relation));
        settings.node = Some(setting("zstd:5"));
        assert_eq!((settings.wanted(), settings.in_force().1), (compressed("zstd:5"), Source::Node));
    }

    #[test]
    fn what_is_not_understood_and_a_plain_tablespace_leave_files_as_they_are() {
        let tablespace = Some(setting("none"));
        assert_eq!(Settings { tablespace, ..Settings::default() }.wanted(), Wanted::Leave);
        let unknown =
            Settings { relation: Some(None), database: Some(Some(setting("lz4"))), ..Settings::default() };
        assert_eq!((unknown.wanted(), unknown.in_force().1), (Wanted::Leave, Source::Relation));
    }

    #[test]
    fn a_file_lacks_what_its_setting_says_and_it_is_not() {
        let file = |form, choice: &str, pages| FileForm {
            form,
            choice: setting(choice).compression,
            pages,
            is_encrypted: false,
        };
        let zstd = compressed("zstd:3");
        for (wanted, form, choice, pages, lacks, is_met) in [
            (zstd, FormNow::Plain, "none", 5, Lacks::Compression, false),
            (zstd, FormNow::Plain, "none", 4, Lacks::Nothing, true),
            (zstd, FormNow::Compressing, "zstd:3", 5, Lacks::Nothing, false),
            (zstd, FormNow::Compressed, "zstd:3", 5, Lacks::Nothing, true),
            (zstd, FormNow::Compressed, "zstd:4", 5, Lacks::Choice, false),
            (zstd, FormNow::Compressed, "none", 5, Lacks::Choice, false),
            (zstd, FormNow::Decompressing, "zstd:3", 5, Lacks::Compression, false),
            (Wanted::Compressed(None), FormNow::Compressed, "none", 5, Lacks::Nothing, true),
            (Wanted::Plain, FormNow::Plain, "none", 5, Lacks::Nothing, true),
            (Wanted::Plain, FormNow::Compressing, "zstd:3", 5, Lacks::Return, false),
            (Wanted::Plain, FormNow::Compressed, "zstd:3", 1, Lacks::Return, false),
            (Wanted::Plain, FormNow::Decompressing, "zstd:3", 5, Lacks::Nothing, false),
            (Wanted::Plain, FormNow::Returned, "zstd:3", 5, Lacks::Return, false),
            (zstd, FormNow::Returned, "zstd:3", 5, Lacks::Compression, false),
            (Wanted::Leave, FormNow::Plain, "none", 5, Lacks::Nothing, true),
            (Wanted::Leave, FormNow::Compressing, "zstd:3", 5, Lacks::Nothing, true),
            (Wanted::Leave, FormNow::Returned, "zstd:3", 5, Lacks::Return, false),
        ] {
            let file = file(form, choice, pages);
            assert_eq!(
                (wanted.lacks(&file), wanted.is_met_by(&file)),
                (lacks, is_met),
                "{wanted:?} {file:?}"
            );
        }
        let encrypted = FileForm { is_encrypted: true, ..file(FormNow::Compressed, "zstd:3", 5) };
        assert_eq!(Wanted::Plain.lacks(&encrypted), Lacks::Nothing);
    }
}
