//! Vectors whose growth may fail, for sizes that come from documents.
//!
//! Rust's own vectors end the process when memory runs out. In a server that would be the end of every session, so
//! whatever grows with a document, a dictionary or a sample grows by these, and the caller gets [`Error::Memory`].

use crate::error::Error;

/// Room for `more` elements.
pub fn reserve<T>(vec: &mut Vec<T>, more: usize) -> Result<(), Error> {
    vec.try_reserve(more).map_err(|_| lacking::<T>(vec.len().saturating_add(more)))
}

/// Room for `more` elements, and no more than that.
pub fn reserve_exact<T>(vec: &mut Vec<T>, more: usize) -> Result<(), Error> {
    vec.try_reserve_exact(more).map_err(|_| lacking::<T>(vec.len().saturating_add(more)))
}

/// `bytes` in memory of their own.
pub fn copy(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let mut own = Vec::new();
    own.try_reserve_exact(bytes.len()).map_err(|_| lacking::<u8>(bytes.len()))?;
    own.extend_from_slice(bytes);
    Ok(own)
}

/// `len` zero bytes.
pub fn zeroed(len: usize) -> Result<Vec<u8>, Error> {
    let mut own = Vec::new();
    own.try_reserve_exact(len).map_err(|_| lacking::<u8>(len))?;
    own.resize(len, 0);
    Ok(own)
}

/// Makes a buffer of bytes at least so long; what is in it stays.
#[inline]
pub fn at_least(buffer: &mut Vec<u8>, len: usize) -> Result<(), Error> {
    if buffer.len() < len { resize(buffer, len, 0) } else { Ok(()) }
}

/// Appends one element.
pub fn push<T>(vec: &mut Vec<T>, element: T) -> Result<(), Error> {
    if vec.len() == vec.capacity() {
        reserve(vec, 1)?;
    }
    vec.push(element);
    Ok(())
}

/// Appends `bytes`.
pub fn append(vec: &mut Vec<u8>, bytes: &[u8]) -> Result<(), Error> {
    reserve(vec, bytes.len())?;
    vec.extend_from_slice(bytes);
    Ok(())
}

/// `len` elements in all; the new ones are like this one.
pub fn resize<T: Clone>(vec: &mut Vec<T>, len: usize, element: T) -> Result<(), Error> {
    reserve(vec, len.saturating_sub(vec.len()))?;
    vec.resize(len, element);
    Ok(())
}

/// Gives back what a vector does not use. One that there is no memory to move out of stays as it is.
pub fn shrink<T: Copy>(vec: &mut Vec<T>) {
    let mut own = Vec::new();
    if vec.capacity() > vec.len() && own.try_reserve_exact(vec.len()).is_ok() {
        own.extend_from_slice(vec);
        *vec = own;
    }
}

/// As `Iterator::collect`.
pub fn collect<T>(elements: impl IntoIterator<Item = T>) -> Result<Vec<T>, Error> {
    let elements = elements.into_iter();
    let mut all = Vec::new();
    reserve(&mut all, elements.size_hint().0)?;
    for element in elements {
        push(&mut all, element)?;
    }
    Ok(all)
}

/// That memory for so many elements is lacking.
pub fn lacking<T>(elements: usize) -> Error {
    Error::Memory { bytes: elements.saturating_mul(size_of::<T>()) as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_had_is_an_error() {
        // More than an address space; the vector keeps what it has.
        let mut vec = vec![1u8, 2, 3];
        let most = isize::MAX as usize - 3;
        assert_eq!(reserve(&mut vec, most), Err(Error::Memory { bytes: isize::MAX as u64 }));
        assert_eq!(vec, [1, 2, 3]);
        assert!(zeroed(isize::MAX as usize).is_err());
        assert!(resize(&mut vec, isize::MAX as usize, 0).is_err());
        assert!(collect(0..usize::MAX).is_err());
    }

    #[test]
    fn what_can_be_had_is_what_a_vector_would_hold() {
        let mut vec = copy(b"abc").unwrap();
        append(&mut vec, b"def").unwrap();
        push(&mut vec, b'g').unwrap();
        assert_eq!(vec, b"abcdefg");
        shrink(&mut vec);
        assert_eq!((vec.as_slice(), vec.capacity()), (&b"abcdefg"[..], 7));
        assert_eq!(zeroed(3).unwrap(), [0; 3]);
        resize(&mut vec, 9, b'x').unwrap();
        assert_eq!(vec, b"abcdefgxx");
        resize(&mut vec, 2, b'x').unwrap();
        assert_eq!(vec, b"ab");
        assert_eq!(collect((0..9).filter(|n| n % 2 == 0)).unwrap(), [0, 2, 4, 6, 8]);
    }
}
