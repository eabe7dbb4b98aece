//! Which keys there are, for whoever mistypes one.
