//! Whose certificates are believed.

use std::io;
use std::sync::{Arc, OnceLock};

use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Certificate authorities: whoever shows a certificate of one of them is believed, and nobody else.
#[derive(Debug, Clone)]
pub struct Trust {
    certificates: Vec<CertificateDer<'static>>,
}

impl Trust {
    /// Those that this host trusts.
    pub fn of_host() -> io::Result<Trust> {
        let found = rustls_native_certs::load_native_certs();
        // A host may list some that are of no use to anybody; the others count.
        let usable =
            |one: &CertificateDer<'static>| RootCertStore::empty().add(one.clone()).is_ok();
        let certificates: Vec<_> = found.certs.into_iter().filter(usable).collect();
        if certificates.is_empty() {
            let why = "this host has no certificates to trust; install the package ca-certificates";
            return Err(io::Error::other(why));
        }
        Ok(Trust { certificates })
    }

    /// Those of a text in PEM form. Each must be readable: whoever names them means all of them.
    ///
    /// ```
    /// # use guild_network::client::Trust;
    /// assert!(Trust::of_pem(b"no certificate").is_err());
    /// ```
    pub fn of_pem(text: &[u8]) -> io::Result<Trust> {
        let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        let mut certificates = Vec::new();
        for one in CertificateDer::pem_slice_iter(text) {
            let one = one.map_err(|e| wrong(format!("it is not of the form PEM: {e}")))?;
            let number = certificates.len().saturating_add(1);
            let usable = RootCertStore::empty().add(one.clone());
            usable.map_err(|e| wrong(format!("certificate {number} in it is none: {e}")))?;
            certificates.push(one);
        }
        match certificates.is_empty() {
            true => Err(wrong("there is no certificate in it".to_owned())),
            false => Ok(Trust { certificates }),
        }
    }

    /// Each certificate, in DER form.
    pub fn certificates(&self) -> impl Iterator<Item = &[u8]> {
        self.certificates.iter().map(|one| &**one)
    }

    /// What speaks TLS everywhere in this program.
    pub fn provider() -> Arc<CryptoProvider> {
        Arc::new(ring::default_provider())
    }

    pub(super) fn client(&self) -> io::Result<Arc<ClientConfig>> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(self.certificates.iter().cloned());
        let config = ClientConfig::builder_with_provider(Trust::provider())
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Arc::new(config))
    }
}

/// Trusts whom the host trusts. Read once: it is many files.
pub(super) fn client_of_host() -> io::Result<Arc<ClientConfig>> {
    static TLS: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(config) = TLS.get() {
        return Ok(config.clone());
    }
    let config = Trust::of_host()?.client()?;
    Ok(TLS.get_or_init(|| config).clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_certificate_is_refused_and_says_why() {
        let said = |text: &[u8]| Trust::of_pem(text).unwrap_err().to_string();
        assert_eq!(said(b""), "there is no certificate in it");
        let junk = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(said(junk).starts_with("certificate 1 in it is none"), "{}", said(junk));
        let cut = b"-----BEGIN CERTIFICATE-----\nAAAA\n";
        assert!(said(cut).starts_with("it is not of the form PEM"), "{}", said(cut));
    }
}
