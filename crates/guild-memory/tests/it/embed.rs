use guild_memory::embed::{DEFAULT_DIMENSIONS, HashEmbedder, MAX_TEXT_BYTES, code, cosine, length};
use proptest::prelude::*;
use serde_json::Value;

/// Made by a second implementation, in another language.
#[test]
fn the_published_vectors_are_what_we_compute() {
    let cases: Vec<Value> =
        serde_json::from_str(include_str!("../../vectors/embedding.json")).unwrap();
    assert_eq!(cases.len(), 8);
    for case in cases {
        let dimensions = usize::try_from(case["dimensions"].as_u64().unwrap()).unwrap();
        let vector = HashEmbedder::new(dimensions).unwrap().embed(case["text"].as_str().unwrap());
        let wanted: Vec<f64> =
            case["embedding"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
        assert_eq!(vector.unwrap(), wanted, "{case}");
    }
}

#[test]
fn what_cannot_be_embedded_is_refused() {
    for bad in [0, 4_097, usize::MAX] {
        assert_eq!(HashEmbedder::new(bad).unwrap_err().code(), &code::DIMENSIONS);
    }
    let embedder = HashEmbedder::default();
    assert_eq!(embedder.embed(&"x".repeat(MAX_TEXT_BYTES)).unwrap().len(), DEFAULT_DIMENSIONS);
    let refused = embedder.embed(&"x".repeat(MAX_TEXT_BYTES + 1)).unwrap_err();
    assert_eq!(refused.code(), &code::TEXT_SIZE);
}

#[test]
fn likeness_follows_the_words() {
    let embed = |text: &str| HashEmbedder::default().embed(text).unwrap();
    let like = |a: &str, b: &str| cosine(&embed(a), &embed(b)).unwrap();
    let sentence = "The provider delivers the embedding of a text";
    let near = like(sentence, "Providers deliver embeddings of texts");
    let far = like(sentence, "Seven green bottles hang on my wall");
    assert!(near > far + 0.2, "{near} {far}");
    assert!(like(sentence, "the provider delivers the embedding of a TEXT!") > 0.999);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn every_vector_has_length_one_and_six_decimals(text in ".{0,300}", dimensions in 1usize..300) {
        let embedder = HashEmbedder::new(dimensions).unwrap();
        let vector = embedder.embed(&text).unwrap();
        prop_assert_eq!(vector.len(), dimensions);
        let off = (length(&vector).unwrap() - 1.0).abs();
        prop_assert!(off < 1e-4, "{}", off);
        for x in &vector {
            prop_assert_eq!((x * 1e6).round() / 1e6, *x);
            prop_assert!(x.to_bits() != (-0.0f64).to_bits());
        }
        prop_assert_eq!(embedder.embed(&text).unwrap(), vector);
    }
}
