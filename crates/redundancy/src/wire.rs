//! Numbers and texts as bytes, one after the other.

/// Bytes of a message that is written.
#[derive(Debug, Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn word(&mut self, word: u64) {
        self.0.extend(word.to_le_bytes());
    }

    pub(crate) fn words(&mut self, words: &[u64]) {
        self.word(words.len() as u64);
        self.0
            .extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        self.0.extend(bytes);
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }
}

/// The rest of a message. Its methods return `None` for bytes that no [`Writer`] wrote.
#[derive(Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn word(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*word))
    }

    fn take(&mut self, each: usize) -> Option<&'a [u8]> {
        let count = usize::try_from(self.word()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(count.checked_mul(each)?)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        self.take(1)
    }

    pub(crate) fn words(&mut self) -> Option<Vec<u64>> {
        let (words, _) = self.take(8)?.as_chunks();
        Some(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }

    pub(crate) fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.is_empty()
    }
}
