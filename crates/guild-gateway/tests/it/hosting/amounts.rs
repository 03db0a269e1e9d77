//! Numbers that cannot be meant, in every field of the document that takes a number.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::routes::{Estate, Need, ROUTES, Route};
use super::{Host, both, code, request};

/// What no field takes. Not all of it is JSON.
const NEVER: [&str; 24] = [
    "-1",
    "-9223372036854775808",
    "1.5",
    "1.0",
    "1e3",
    "1E400",
    "-1e400",
    "1e-400",
    "9007199254740993",
    "9223372036854775808",
    "18446744073709551617",
    "340282366920938463463374607431768211456",
    "\"1\"",
    "\"1e3\"",
    "\"+1\"",
    "\"\\u0661\"",
    "\"\u{ff11}\"",
    "+1",
    "01",
    "0x10",
    "NaN",
    "Infinity",
    "true",
    "[1]",
];

/// A number of a body or a query: its name, and its bounds.
struct Field {
    name: String,
    least: i64,
    most: Option<i64>,
}

fn is_integer(schema: &Value) -> bool {
    match &schema["type"] {
        Value::String(one) => one == "integer",
        Value::Array(all) => all.contains(&json!("integer")),
        _ => false,
    }
}

fn field(name: &str, schema: &Value) -> Field {
    let least = schema["minimum"].as_i64().unwrap_or_else(|| panic!("{name} has no least value"));
    Field { name: name.to_owned(), least, most: schema["maximum"].as_i64() }
}

/// The numbers that a route reads from its body, and from its query.
fn fields(document: &Value, route: &Route) -> (Vec<Field>, Vec<Field>) {
    let described = &document["paths"][route.path][route.method.to_lowercase()];
    let name = described["requestBody"]["content"]["application/json"]["schema"]["$ref"].as_str();
    let schema =
        name.map(|name| &document["components"]["schemas"][name.rsplit('/').next().unwrap()]);
    let properties = schema.and_then(|schema| schema["properties"].as_object());
    let body = properties.into_iter().flatten().filter(|(_, schema)| is_integer(schema));
    let parameters = described["parameters"].as_array();
    let query = parameters.into_iter().flatten().filter(|one| one["in"] == "query");
    let query = query.filter(|one| is_integer(&one["schema"]));
    (
        body.map(|(name, schema)| field(name, schema)).collect(),
        query.map(|one| field(one["name"].as_str().unwrap(), &one["schema"])).collect(),
    )
}

/// The body of a route with one field as it is written here.
fn with(route: &Route, name: &str, written: &str) -> String {
    let mut body: Value = serde_json::from_str(route.body).unwrap();
    let amount = ["_micro_usd", "_cents"].iter().find_map(|end| name.strip_suffix(end));
    let map = body.as_object_mut().unwrap();
    // An amount is given in one way.
    map.retain(|field, _| amount.is_none_or(|amount| !field.starts_with(amount)));
    map.insert(name.to_owned(), json!("HERE"));
    body.to_string().replace("\"HERE\"", written)
}

/// A number beyond a bound, if there is one.
fn beyond(field: &Field) -> Vec<String> {
    let below = (field.least > 0).then(|| "0".to_owned());
    let minus = (field.least > 0).then(|| "-0".to_owned());
    let above = field.most.and_then(|most| most.checked_add(1)).map(|most| most.to_string());
    below.into_iter().chain(minus).chain(above).collect()
}

async fn refuses(
    host: &Host,
    estate: &Estate,
    route: &Route,
    field: &Field,
    in_query: bool,
) -> usize {
    let token = if route.need == Need::Node { "secret" } else { estate.token.as_str() };
    let key = (route.method != "GET").then_some("bad");
    let written = NEVER.iter().map(|one| (*one).to_owned()).chain(beyond(field));
    let mut tried = 0;
    for written in written {
        let (path, body) = match in_query {
            false => (estate.path(route.path), with(route, &field.name, &written)),
            true => {
                let path = estate.path(route.path);
                let joint = if path.contains('?') { '&' } else { '?' };
                let value = written.trim_matches('"').replace("\\u0661", "%D9%A1");
                let value = value.replace('+', "%2B").replace('\u{ff11}', "%EF%BC%91");
                // What is a number in quotes is a number in a query.
                if value == "1" || value == "01" || value == "%2B1" {
                    continue;
                }
                (format!("{path}{joint}{}={value}", field.name), String::new())
            }
        };
        let answer = host.ask(request(route.method, &path, token, key, &body)).await;
        let about = format!("{} {} {written}", route.is(), field.name);
        assert_eq!(answer.0, StatusCode::BAD_REQUEST, "{about}: {}", answer.1);
        let said = code(&answer).1;
        let known = ["gateway.bad_request", "hosting.malformed", "hosting.bad_shape"];
        assert!(known.contains(&said), "{about}: {}", answer.1);
        tried += 1;
    }
    tried
}

#[test]
fn every_number_of_every_route_has_bounds() {
    let document: Value = serde_json::from_str(&guild_gateway::openapi()).unwrap();
    both(async |host: &Host| {
        let estate = Estate::of(host, 1).await;
        let before = host.books().await;
        let (mut numbers, mut tried) = (0, 0);
        for route in ROUTES {
            let (body, query) = fields(&document, route);
            for (field, in_query) in
                body.iter().map(|one| (one, false)).chain(query.iter().map(|one| (one, true)))
            {
                tried += refuses(host, &estate, route, field, in_query).await;
                numbers += 1;
            }
        }
        assert!(numbers >= 30 && tried >= 700, "{numbers} {tried}");
        assert_eq!(host.books().await, before);
    });
}

#[test]
fn what_is_huge_and_in_bounds_is_clamped_or_refused_and_never_overflows() {
    both(async |host: &Host| {
        let token = host.sign_in(1).await;
        host.credit(&host.user_id(&token).await, 9_007_199_254_740_991, "all there is").await;
        let most = json!({"max_spend_micro_usd": 9_007_199_254_740_991_i64, "ttl_s": 31_622_400});
        let (status, made) = host.post(&token, "/v1/jobs", "k", &most).await;
        assert_eq!(status, StatusCode::CREATED, "{made}");
        assert_eq!(made["granted"]["max_spend_micro_usd"]["bound_by"], "policy_cap");
        assert_eq!(made["granted"]["expires_ms"]["bound_by"], "policy_cap");
        let path = format!("/v1/jobs/{}/sandboxes", made["job_id"].as_str().unwrap());
        let before = host.books().await;
        for (cpu, ram, disk) in [(1_000_000, 1, 1), (1, 16_777_216, 1), (100, 64, 1_073_741_824)] {
            let body = json!({"image": "sandbox-base:v1.0.0", "cpu_milli": cpu, "ram_mib": ram, "disk_mib": disk});
            let answer = host.post(&token, &path, "huge", &body).await;
            assert_eq!(code(&answer), (400, "hosting.bad_shape"), "{body}");
        }
        let out = json!({"amount_micro_usd": 9_007_199_254_740_991_i64, "destination": "there"});
        assert_eq!(host.books().await, before);
        let (status, _) = host.post(&token, "/v1/billing/withdrawals", "out", &out).await;
        assert_eq!(status, StatusCode::CREATED);
        let answer = host.post(&token, "/v1/billing/withdrawals", "again", &out).await;
        assert_eq!(code(&answer), (409, "ledger.overdraft"));
        let prices = host.get("", "/v1/prices?cpu_milli=1000000&ram_mib=16777216").await;
        assert_eq!(prices.1["price_micro_usd_per_minute"], 840_000 + 270 * 16_384);
        assert_eq!(host.problems().await, Vec::<String>::new());
    });
}
