//! `postroom config example`.
