//! Opens object stores by their URLs. The errors say what to change.

mod client;
mod crypto;

use crate::ObjectBlobs;
use crate::remote::{Remote, message};
use client::Connector;
use crypto::Graviola;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::{
    BackoffConfig, Error as StoreError, ObjectStore, ObjectStoreScheme, RetryConfig,
};
use std::sync::Arc;
use std::time::Duration;
use tierflow_store::{Error, Result};
use url::Url;

/// The longest time of the first request, so that a wrong endpoint is an error soon.
const FIRST_PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn open(url: &str, patience: Duration) -> Result<ObjectBlobs> {
    let (scheme, path, url) = parsed(url)?;
    let first = patience.min(FIRST_PATIENCE);
    match Remote::new(store(&scheme, &url, first)?, first)?.probe(&path) {
        Ok(Ok(())) => ObjectBlobs::new(store(&scheme, &url, patience)?, path, patience),
        Ok(Err(error)) => Err(refused(&scheme, &url, &error)),
        Err(error) => Err(Error::Remote(format!(
            "{url} cannot be reached: {error}; {}",
            advice(&scheme)
        ))),
    }
}

/// Parses a URL. Returns the kind of store, the prefix, and the URL.
fn parsed(text: &str) -> Result<(ObjectStoreScheme, Path, Url)> {
    // The error does not repeat the URL, which may have a password in it.
    let wrong = |why: &str| {
        let scheme = text.split("://").next().unwrap_or_default();
        Error::Argument(format!("the {scheme}:// URL cannot be used: {why}"))
    };
    let url = Url::parse(text).map_err(|error| wrong(&error.to_string()))?;
    let is_secret = url.password().is_some()
        || (!url.username().is_empty() && matches!(url.scheme(), "s3" | "s3a" | "gs"));
    if is_secret {
        return Err(wrong(
            "there are credentials in it, which end up in logs: set the environment variables of the store",
        ));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(wrong(
            "it has a query or fragment: write bucket and prefix alone, and set the rest by environment variables",
        ));
    }
    let (scheme, path) = ObjectStoreScheme::parse(&url).map_err(|_| {
        wrong("write s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///directory")
    })?;
    match scheme {
        ObjectStoreScheme::AmazonS3
        | ObjectStoreScheme::GoogleCloudStorage
        | ObjectStoreScheme::MicrosoftAzure => Ok((scheme, path, url)),
        _ => Err(wrong(
            "it names no object store: write s3://bucket/prefix, gs://bucket/prefix or az://container/prefix, and the address \
             of a server of your own in AWS_ENDPOINT_URL",
        )),
    }
}

/// Makes the store that a URL names, with the configuration of the environment.
fn store(
    scheme: &ObjectStoreScheme,
    url: &Url,
    patience: Duration,
) -> Result<Arc<dyn ObjectStore>> {
    crypto::supported()?;
    let crypto = Arc::new(Graviola);
    // A try that hangs is made again once.
    let connector = |timeout: &str| Connector {
        longest_try: std::env::var_os(timeout).is_none().then_some(patience / 2),
    };
    let built: object_store::Result<Arc<dyn ObjectStore>> = match scheme {
        ObjectStoreScheme::AmazonS3 => AmazonS3Builder::from_env()
            .with_url(url.as_str())
            .with_retry(retry(patience))
            .with_crypto_provider(crypto)
            .with_http_connector(connector("AWS_TIMEOUT"))
            .build()
            .map(|store| Arc::new(store) as _),
        ObjectStoreScheme::GoogleCloudStorage => GoogleCloudStorageBuilder::from_env()
            .with_url(url.as_str())
            .with_retry(retry(patience))
            .with_crypto_provider(crypto)
            .with_http_connector(connector("GOOGLE_TIMEOUT"))
            .build()
            .map(|store| Arc::new(store) as _),
        _ => MicrosoftAzureBuilder::from_env()
            .with_url(url.as_str())
            .with_retry(retry(patience))
            .with_crypto_provider(crypto)
            .with_http_connector(connector("AZURE_TIMEOUT"))
            .build()
            .map(|store| Arc::new(store) as _),
    };
    built.map_err(|error| {
        let advice = advice(scheme);
        Error::Argument(format!(
            "{url} cannot be used: {}; {advice}",
            message(&error)
        ))
    })
}

/// Returns the rule for retries: any number of them within three quarters of the request's time. The error of the last try then comes before
/// the deadline.
fn retry(patience: Duration) -> RetryConfig {
    let (least, most) = (Duration::from_millis(100), Duration::from_secs(5));
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: least,
            max_backoff: (patience / 8).clamp(least, most),
            base: 2.,
        },
        max_retries: 1_000_000,
        retry_timeout: patience / 4 * 3,
    }
}

/// Returns the settings that the user should check.
fn advice(scheme: &ObjectStoreScheme) -> &'static str {
    match scheme {
        ObjectStoreScheme::AmazonS3 => {
            "look at AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION or, for a server of your own, AWS_ENDPOINT_URL and, \
             if that is http://, AWS_ALLOW_HTTP=true; without keys, the machine's own role is asked for"
        }
        ObjectStoreScheme::GoogleCloudStorage => {
            "look at GOOGLE_SERVICE_ACCOUNT, the path of a service account's key, or GOOGLE_APPLICATION_CREDENTIALS; without them, \
             the machine's own account is asked for"
        }
        _ => {
            "look at AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN or AZURE_CLIENT_ID, \
             AZURE_CLIENT_SECRET and AZURE_TENANT_ID"
        }
    }
}

/// Returns an error with the reason for which the first request failed, and what to do.
fn refused(scheme: &ObjectStoreScheme, url: &Url, error: &StoreError) -> Error {
    let (why, advice) = (message(error), advice(scheme));
    // Errors of lists have the answer's text only, and no kind.
    let says = |words: &[&str]| words.iter().any(|word| why.contains(word));
    let bucket = url.host_str().unwrap_or_default();
    Error::Argument(
        if matches!(error, StoreError::NotFound { .. }) || says(NO_BUCKET) {
            format!("{url}: there is no {bucket} ({why}): make it, or name another one")
        } else if matches!(error, StoreError::Unauthenticated { .. }) || says(NO_LOGIN) {
            format!("{url} does not accept the credentials: {why}; {advice}")
        } else if matches!(error, StoreError::PermissionDenied { .. }) || says(NO_RIGHT) {
            format!(
                "{url} may not be listed: {why}; give these credentials the right to list, read, write and delete there, or \
                 {advice}"
            )
        } else {
            return Error::Remote(format!("{url} cannot be used: {why}; {advice}"));
        },
    )
}

/// Parts of the answers of stores if there is no such bucket.
const NO_BUCKET: &[&str] = &["NoSuchBucket", "ContainerNotFound", "404 Not Found"];
/// Parts of the answers of stores that do not know the credentials.
const NO_LOGIN: &[&str] = &[
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "InvalidToken",
    "ExpiredToken",
    "AuthenticationFailed",
    "401 Unauthorized",
];
/// Parts of the answers of stores if the credentials do not permit the request.
const NO_RIGHT: &[&str] = &["AccessDenied", "AuthorizationFailure", "403 Forbidden"];

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(url: &str) -> String {
        match parsed(url) {
            Err(Error::Argument(text)) => text,
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn urls_of_stores_have_a_bucket_and_a_prefix() {
        for (url, prefix) in [
            ("s3://bucket", ""),
            ("s3://bucket/a/b/", "a/b"),
            ("gs://bucket/a", "a"),
            ("az://container/a%20b", "a b"),
            ("abfs://system@account.dfs.core.windows.net/a", "a"),
        ] {
            let path = parsed(url).map(|(_, path, _)| path);
            assert!(
                path.as_ref().is_ok_and(|path| *path == Path::from(prefix)),
                "{url}: {path:?}"
            );
        }
        for (url, expected) in [
            ("s3://", "s3://"),
            ("s4://bucket/x", "write s3://bucket/prefix"),
            ("https://example.com/x", "AWS_ENDPOINT_URL"),
            ("s3://bucket/x?versionId=3", "query"),
        ] {
            assert!(wrong(url).contains(expected), "{url}: {}", wrong(url));
        }
    }

    #[test]
    fn tries_end_by_the_deadline_alone_and_before_it() {
        for seconds in [1, 20, 60, 3600] {
            let patience = Duration::from_secs(seconds);
            let retry = retry(patience);
            assert!(retry.max_retries > patience.as_millis() as usize / 100);
            assert!(retry.retry_timeout > patience / 2);
            assert!(retry.retry_timeout + retry.backoff.max_backoff < patience);
        }
        for patience in [Duration::ZERO, Duration::MAX] {
            let backoff = retry(patience).backoff;
            assert!(!backoff.init_backoff.is_zero());
            assert!(backoff.init_backoff <= backoff.max_backoff);
        }
    }

    #[test]
    fn what_is_secret_in_a_url_is_not_repeated() {
        for url in [
            "s3://AKIA:geheim@bucket/x",
            "s3://geheim@bucket/x",
            "az://account:geheim@container/x",
            "az://container/x?sig=geheim",
            "s3://:geheim@/",
        ] {
            let text = wrong(url);
            assert!(
                !text.contains("geheim") && text.contains("cannot be used"),
                "{text}"
            );
        }
    }
}
