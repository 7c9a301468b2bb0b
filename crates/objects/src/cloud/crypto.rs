//! The cryptography that signs requests.

use graviola::hashing::hmac::Hmac;
use graviola::hashing::{Hash, HashContext, HashOutput, Sha256};
use graviola::signing::rsa::SigningKey;
use object_store::client::{
    CryptoProvider, DigestAlgorithm, DigestContext, HmacContext, Signer, SigningAlgorithm,
};
use object_store::{Error, Result};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;

/// The cryptography of Graviola, which TLS uses, too.
#[derive(Debug)]
pub(super) struct Graviola;

/// Checks that this CPU has the instructions without which Graviola panics.
pub(super) fn supported() -> tierflow_store::Result<()> {
    #[cfg(target_arch = "x86_64")]
    let is_supported = std::arch::is_x86_feature_detected!("aes")
        && std::arch::is_x86_feature_detected!("pclmulqdq")
        && std::arch::is_x86_feature_detected!("bmi1")
        && std::arch::is_x86_feature_detected!("adx")
        && std::arch::is_x86_feature_detected!("avx2");
    #[cfg(target_arch = "aarch64")]
    let is_supported = std::arch::is_aarch64_feature_detected!("neon")
        && std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull")
        && std::arch::is_aarch64_feature_detected!("sha2");
    match is_supported {
        true => Ok(()),
        false => Err(tierflow_store::Error::Argument(
            "object stores need a CPU with AES, carry-less multiplication and, on x86-64, ADX, AVX2 and BMI1: hand over an \
             ObjectStore of your own"
                .to_owned(),
        )),
    }
}

impl CryptoProvider for Graviola {
    fn digest(&self, algorithm: DigestAlgorithm) -> Result<Box<dyn DigestContext>> {
        match algorithm {
            DigestAlgorithm::Sha256 => Ok(Box::new(Digest(Sha256::new(), None))),
            other => Err(unknown(&other)),
        }
    }

    fn hmac(&self, algorithm: DigestAlgorithm, secret: &[u8]) -> Result<Box<dyn HmacContext>> {
        match algorithm {
            DigestAlgorithm::Sha256 => Ok(Box::new(Mac(Hmac::new(secret), None))),
            other => Err(unknown(&other)),
        }
    }

    fn sign(&self, algorithm: SigningAlgorithm, pem: &[u8]) -> Result<Box<dyn Signer>> {
        match algorithm {
            SigningAlgorithm::RS256 => {}
            other => return Err(unknown(&other)),
        }
        let key = match PrivateKeyDer::from_pem_slice(pem) {
            Ok(PrivateKeyDer::Pkcs8(key)) => SigningKey::from_pkcs8_der(key.secret_pkcs8_der()),
            Ok(PrivateKeyDer::Pkcs1(key)) => SigningKey::from_pkcs1_der(key.secret_pkcs1_der()),
            _ => return Err(failed("there is no RSA key in PEM form".to_owned())),
        };
        match key {
            Ok(key) => Ok(Box::new(Rsa(key))),
            Err(error) => Err(failed(format!("the RSA key cannot be used: {error:?}"))),
        }
    }
}

fn unknown(algorithm: &dyn std::fmt::Debug) -> Error {
    failed(format!("there is no {algorithm:?} here"))
}

fn failed(why: String) -> Error {
    Error::Generic {
        store: "cryptography",
        source: why.into(),
    }
}

struct Digest(<Sha256 as Hash>::Context, Option<HashOutput>);

impl DigestContext for Digest {
    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn finish(&mut self) -> Result<&[u8]> {
        let finished = self.0.clone().finish();
        Ok((*self.1.insert(finished)).as_ref())
    }
}

struct Mac(Hmac<Sha256>, Option<HashOutput>);

impl HmacContext for Mac {
    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn finish(&mut self) -> Result<&[u8]> {
        let finished = self.0.clone().finish();
        Ok((*self.1.insert(finished)).as_ref())
    }
}

struct Rsa(SigningKey);

impl Signer for Rsa {
    fn sign(&self, string_to_sign: &[u8]) -> Result<Vec<u8>> {
        let mut signature = vec![0; self.0.modulus_len_bytes()];
        let signed = self.0.sign_pkcs1_sha256(&mut signature, string_to_sign);
        match signed.map(<[u8]>::len) {
            Ok(length) => {
                signature.truncate(length);
                Ok(signature)
            }
            Err(error) => Err(failed(format!("signing failed: {error:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn digests_are_those_of_the_standards() {
        supported().unwrap();
        let mut digest = Graviola.digest(DigestAlgorithm::Sha256).unwrap();
        digest.update(b"a");
        digest.update(b"bc");
        // FIPS 180-4's example.
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hex(digest.finish().unwrap()), abc);
        // RFC 4231, test case 2.
        let mut mac = Graviola.hmac(DigestAlgorithm::Sha256, b"Jefe").unwrap();
        mac.update(b"what do ya want ");
        mac.update(b"for nothing?");
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(hex(mac.finish().unwrap()), expected);
    }

    #[test]
    fn service_accounts_sign_with_their_keys() {
        use graviola::signing::rsa::KeySize;
        let key = SigningKey::generate(KeySize::Rsa2048).unwrap();
        let mut der = vec![0; 4096];
        let der = key.to_pkcs8_der(&mut der).unwrap();
        let text = base64(der);
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n");
        let signer = Graviola
            .sign(SigningAlgorithm::RS256, pem.as_bytes())
            .unwrap();
        let signature = signer.sign(b"claims").unwrap();
        let public = key.public_key();
        assert!(public.verify_pkcs1_sha256(&signature, b"claims").is_ok());
        assert!(public.verify_pkcs1_sha256(&signature, b"others").is_err());
        assert!(Graviola.sign(SigningAlgorithm::RS256, b"no key").is_err());
    }

    fn base64(bytes: &[u8]) -> String {
        const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut text = String::new();
        for chunk in bytes.chunks(3) {
            let word = (0..3).fold(0_u32, |word, at| {
                word << 8 | u32::from(chunk.get(at).copied().unwrap_or(0))
            });
            for at in 0..4 {
                let letter = LETTERS[(word >> (18 - 6 * at) & 63) as usize] as char;
                text.push(if at > chunk.len() { '=' } else { letter });
            }
        }
        text
    }
}
