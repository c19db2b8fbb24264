//! mio
