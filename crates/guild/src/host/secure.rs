//! TLS to a node: whom it must be certified by, and what is said if it is not.

use std::path::Path;
use std::sync::Arc;

use guild_network::client::Trust;
use tokio_rustls::rustls::{self, CertificateError};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::error::{Error, Result, code};
use crate::input::Input;

/// More certificates than any host trusts.
const MAX_BYTES: usize = 4 << 20;

/// Whether an address is one that is reached by TLS.
pub(super) fn is_secure(url: &str) -> bool {
    url.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://"))
}

/// Whom the file names, and nobody else.
pub(super) fn of_file(path: &Path) -> Result<Trust> {
    let text = Input::from(path.as_os_str().to_owned()).read(MAX_BYTES)?;
    let wrong = |e: std::io::Error| Error::new(&code::HOST_CA_FILE, e.to_string()).in_file(path);
    Trust::of_pem(&text).map_err(wrong)
}

/// How the client speaks TLS, with the certificates of its own or those of the host.
pub(super) fn config(own: Option<&Trust>) -> Result<TlsConfig> {
    let unusable = |e: std::io::Error| Error::new(&code::HOST_CERTIFICATE, e.to_string());
    let of_host = match own {
        Some(_) => None,
        None => Some(Trust::of_host().map_err(unusable)?),
    };
    let trusted = own.or(of_host.as_ref()).into_iter().flat_map(Trust::certificates);
    let roots: Vec<_> = trusted.map(|one| Certificate::from_der(one).to_owned()).collect();
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::Specific(Arc::new(roots)))
        .unversioned_rustls_crypto_provider(Trust::provider())
        .build())
}

/// What is wrong with the certificate of whoever answers, if that is what went wrong.
pub(super) fn distrust(url: &str, error: &ureq::Error) -> Option<Error> {
    let error = match error {
        ureq::Error::Rustls(error) => error,
        ureq::Error::Io(error) => error.get_ref()?.downcast_ref::<rustls::Error>()?,
        _ => return None,
    };
    let rustls::Error::InvalidCertificate(error) = error else { return None };
    let message = format!("the certificate of {url} {}; nothing was sent", fault(error));
    Some(Error::new(&code::HOST_CERTIFICATE, message))
}

fn fault(error: &CertificateError) -> String {
    use CertificateError::{
        Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet,
        NotValidYetContext, UnknownIssuer,
    };
    let words = match error {
        UnknownIssuer => "is of nobody who is trusted here",
        Expired | ExpiredContext { .. } => "has expired",
        NotValidYet | NotValidYetContext { .. } => "is not valid yet",
        NotValidForName | NotValidForNameContext { .. } => "is for another name",
        other => return format!("is not accepted: {other}"),
    };
    words.to_owned()
}
