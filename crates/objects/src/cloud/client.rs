//! The HTTP client of the object stores.

use object_store::client::{ClientConfigKey, HttpClient, HttpConnector};
use object_store::{ClientOptions, Error, Result};
use rustls_platform_verifier::BuilderVerifierExt;
use std::sync::Arc;
use std::time::Duration;

/// Makes HTTP clients with TLS by Graviola, which needs no C compiler, and with the system's certificates, or those that `SSL_CERT_FILE`
/// names. Changes no setting of the whole process.
#[derive(Debug)]
pub(super) struct Connector {
    /// The longest time of a single try of a request. `None` if the environment says it.
    pub(super) longest_try: Option<Duration>,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> Result<HttpClient> {
        let value = |key| options.get_config_value(&key);
        let is_set = |key| value(key).is_some_and(|text| text == "true");
        let duration = |key| -> Result<Option<Duration>> {
            let text = value(key);
            let parsed = text
                .map(|text| humantime::parse_duration(&text))
                .transpose();
            parsed.map_err(|error| failed(error.into()))
        };
        if is_set(ClientConfigKey::AllowInvalidCertificates) {
            let why = "certificates are always checked: name the one of your server's authority in SSL_CERT_FILE";
            return Err(failed(why.into()));
        }
        let mut builder = reqwest::Client::builder()
            .https_only(!is_set(ClientConfigKey::AllowHttp))
            .tls_backend_preconfigured(tls()?)
            .http1_only();
        if let Some(agent) = value(ClientConfigKey::UserAgent) {
            builder = builder.user_agent(agent);
        }
        if let Some(url) = value(ClientConfigKey::ProxyUrl) {
            let proxy =
                reqwest::Proxy::all(url).map_err(|error| failed(error.without_url().into()))?;
            let excluded = value(ClientConfigKey::ProxyExcludes);
            let excluded = excluded.as_deref().and_then(reqwest::NoProxy::from_string);
            builder = builder.proxy(proxy.no_proxy(excluded));
        }
        let longest_try = match self.longest_try {
            None => duration(ClientConfigKey::Timeout)?,
            some => some,
        };
        if let Some(timeout) = longest_try {
            builder = builder.timeout(timeout);
        }
        if let Some(timeout) = duration(ClientConfigKey::ConnectTimeout)? {
            builder = builder.connect_timeout(timeout);
        }
        if let Some(timeout) = duration(ClientConfigKey::ReadTimeout)? {
            builder = builder.read_timeout(timeout);
        }
        if let Some(timeout) = duration(ClientConfigKey::PoolIdleTimeout)? {
            builder = builder.pool_idle_timeout(timeout);
        }
        let client = builder.build();
        Ok(HttpClient::new(
            client.map_err(|error| failed(error.into()))?,
        ))
    }
}

fn tls() -> Result<rustls::ClientConfig> {
    let provider = Arc::new(rustls_graviola::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_platform_verifier());
    let config = config.map_err(|error| failed(error.into()))?;
    Ok(config.with_no_client_auth())
}

fn failed(source: Box<dyn std::error::Error + Send + Sync>) -> Error {
    Error::Generic {
        store: "HTTP",
        source,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use object_store::client::{HttpErrorKind, HttpRequest, HttpRequestBody};
    use std::net::TcpListener;
    use tokio::runtime::Builder;

    /// Asks a server that never answers.
    fn end_of_a_try(connector: &Connector, timeout: Duration) -> HttpErrorKind {
        let options = ClientOptions::new()
            .with_allow_http(true)
            .with_timeout(timeout);
        let client = connector.connect(&options).unwrap();
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        let url = format!("http://{}/", server.local_addr().unwrap());
        *request.uri_mut() = url.parse().unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let asked = runtime.block_on(client.execute(request));
        asked.map(drop).unwrap_err().kind()
    }

    #[test]
    fn a_try_ends_by_its_own_time_or_by_that_of_the_environment() {
        let (soon, late) = (Duration::from_millis(50), Duration::from_secs(3600));
        for (longest_try, timeout) in [(Some(soon), late), (None, soon)] {
            let end = end_of_a_try(&Connector { longest_try }, timeout);
            assert_eq!(end, HttpErrorKind::Timeout);
        }
    }
}
