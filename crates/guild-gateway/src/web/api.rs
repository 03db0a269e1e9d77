//! The API of hosting, for people: every path, what it takes and what it does.

use maud::{Markup, html};
use utoipa::openapi::path::{Operation, ParameterIn};
use utoipa::openapi::{Object, OpenApi, RefOr, Schema};

use super::{Area, page};

pub(crate) fn api(document: &OpenApi) -> String {
    let info = &document.info;
    let content = html! {
        div class="lead" {
            h1 { (info.title) }
            p { (info.description.as_deref().unwrap_or_default()) }
            p { "The whole of it, for programs: " a href="/v1/openapi.json" { code { "/v1/openapi.json" } } }
        }
        @for (tag, operations) in by_tag(document) {
            section aria-labelledby=(tag) {
                header { h2 id=(tag) { (tag) } }
                dl class="api" {
                    @for (method, path, operation) in operations {
                        dt { code { (method) " " (path) } }
                        dd { (described(document, operation)) }
                    }
                }
            }
        }
    };
    page("API", Area::Nowhere, Some("/v1/openapi.json"), &content)
}

type Row<'a> = (&'static str, &'a str, &'a Operation);

/// The operations below their tags, in the order of the paths.
fn by_tag(document: &OpenApi) -> Vec<(String, Vec<Row<'_>>)> {
    let mut tags: Vec<(String, Vec<Row<'_>>)> = Vec::new();
    for (path, item) in &document.paths.paths {
        let methods = [
            ("GET", &item.get),
            ("POST", &item.post),
            ("DELETE", &item.delete),
            ("PUT", &item.put),
            ("PATCH", &item.patch),
            ("HEAD", &item.head),
            ("OPTIONS", &item.options),
        ];
        for (method, operation) in methods {
            let Some(operation) = operation else { continue };
            let tag = operation.tags.iter().flatten().next().cloned().unwrap_or_default();
            match tags.iter_mut().find(|(known, _)| *known == tag) {
                Some((_, rows)) => rows.push((method, path, operation)),
                None => tags.push((tag, vec![(method, path, operation)])),
            }
        }
    }
    tags
}

/// What a body holds, by its name.
fn fields<'a>(document: &'a OpenApi, body: &str) -> Option<&'a Object> {
    match document.components.as_ref()?.schemas.get(body)? {
        RefOr::T(Schema::Object(object)) => Some(object),
        _ => None,
    }
}

/// The fields of a body, those that may be left out with a question mark.
fn listed(object: &Object) -> Markup {
    html! {
        @for (number, name) in object.properties.keys().enumerate() {
            @if number > 0 { ", " }
            code { (name) @if !object.required.contains(name) { "?" } }
        }
    }
}

fn described(document: &OpenApi, operation: &Operation) -> Markup {
    let words = [&operation.summary, &operation.description];
    let body = operation.request_body.as_ref().and_then(|body| {
        body.content.get("application/json")?.schema.as_ref().and_then(|schema| match schema {
            RefOr::Ref(reference) => reference.ref_location.rsplit('/').next().map(str::to_owned),
            RefOr::T(_) => None,
        })
    });
    let query: Vec<&str> = operation
        .parameters
        .iter()
        .flatten()
        .filter(|parameter| matches!(parameter.parameter_in, ParameterIn::Query))
        .map(|parameter| parameter.name.as_str())
        .collect();
    html! {
        p { @for words in words.into_iter().flatten() { (words) " " } }
        @if let Some(body) = body {
            p {
                "Body: " code { (body) }
                @if let Some(object) = fields(document, &body) { ": " (listed(object)) }
            }
        }
        @if !query.is_empty() { p { "Query: " code { (query.join(", ")) } } }
    }
}
