//! Ways to change evidence. Whoever changes it makes the hashes of the manifest fit; the buyer can also sign anew.

use guild_protocol::replay::{Event as Line, Output, SessionStatus, Start, Writer};
use guild_protocol::timestamp::Timestamp;

use super::*;

/// A dossier in the hands of somebody.
pub(super) struct Forged {
    pub(super) manifest: Manifest,
    pub(super) files: BTreeMap<String, Vec<u8>>,
}

impl Forged {
    pub(super) fn of(gathered: &Gathered) -> Forged {
        let mut files = gathered.files.clone();
        files.remove(MANIFEST);
        Forged { manifest: gathered.manifest.clone(), files }
    }

    pub(super) fn report(&self, rerun: bool) -> Report {
        let hashes = self.files.iter().map(|(path, bytes)| (path.clone(), Hash::of(bytes)));
        let manifest = Manifest { files: hashes.collect(), ..self.manifest.clone() };
        let mut folder = Folder::of(&self.files);
        folder.put(MANIFEST, Found::Whole(to_canonical(&manifest).unwrap()));
        check(&folder, rerun)
    }

    pub(super) fn codes(&self) -> BTreeSet<&'static str> {
        self.report(false).problems().map(|(_, problem)| problem.code.name).collect()
    }

    fn event(&self, id: &EventId) -> Event {
        Event::parse(&self.files[&dossier::event_at(id)], &Limits::DEFAULT).unwrap()
    }

    fn put_event(&mut self, event: &Event) -> EventId {
        self.files.insert(dossier::event_at(&event.id), event.to_json().into_bytes());
        event.id
    }

    fn drop_event(&mut self, id: &EventId) {
        self.files.remove(&dossier::event_at(id));
    }

    fn request(&self) -> Event {
        self.event(&self.manifest.works[0].request_id)
    }

    fn result(&self) -> Event {
        self.event(&self.manifest.works[0].result_id.unwrap())
    }

    fn put_result(&mut self, event: &Event) {
        let old = self.manifest.works[0].result_id.unwrap();
        self.drop_event(&old);
        self.manifest.works[0].result_id = Some(self.put_event(event));
    }

    fn verdict(&self, work: usize) -> Value {
        let hash = self.manifest.works[work].verdict_hash.unwrap();
        serde_json::from_slice(&self.files[&dossier::verdict_at(&hash)]).unwrap()
    }

    fn put_verdict(&mut self, work: usize, verdict: &Value) {
        let old = self.manifest.works[work].verdict_hash.unwrap();
        self.files.remove(&dossier::verdict_at(&old));
        let bytes = to_canonical(verdict).unwrap();
        let hash = Hash::of(&bytes);
        self.files.insert(dossier::verdict_at(&hash), bytes);
        self.manifest.works[work].verdict_hash = Some(hash);
    }

    fn stated(&self, work: usize) -> Draft {
        let id = self.manifest.works[work].receipt_id.clone().unwrap();
        let bytes = &self.files[&dossier::receipt_at(&id)];
        Receipt::from_bytes(bytes).unwrap().stated().clone()
    }

    /// The buyer signs another receipt.
    fn sign(&mut self, work: usize, draft: &Draft) {
        let old = self.manifest.works[work].receipt_id.clone().unwrap();
        self.files.remove(&dossier::receipt_at(&old));
        let receipt = draft.sign(&key(BUYER)).unwrap();
        self.files.insert(dossier::receipt_at(receipt.receipt_id()), receipt.as_bytes().to_vec());
        self.manifest.works[work].receipt_id = Some(receipt.receipt_id().clone());
    }
}

fn slice_path(manifest: &Manifest) -> String {
    dossier::slice_at(&manifest.works[0].request_id)
}

fn replay_path(manifest: &Manifest) -> String {
    dossier::replay_at(&manifest.works[0].request_id)
}

fn other() -> &'static Gathered {
    &day().private
}

pub(super) fn file_of_nothing(forged: &mut Forged) {
    let stranger = Feedback::about(&forged.request(), Told::Processing);
    let event = stranger.draft(1).unwrap().sign(&key(9)).unwrap();
    forged.put_event(&event);
}

pub(super) fn event_not_signed(forged: &mut Forged) {
    let mut event = forged.result();
    event.content.push(' ');
    event.id = event.compute_id();
    forged.put_result(&event);
}

pub(super) fn request_of_somebody_else(forged: &mut Forged) {
    let old = forged.request();
    let request = Request::parse(&old, None).unwrap();
    let event = request.draft(old.created_at).unwrap().sign(&key(9)).unwrap();
    forged.drop_event(&old.id);
    forged.manifest.works[0].request_id = forged.put_event(&event);
}

pub(super) fn request_for_other_work(forged: &mut Forged) {
    let old = forged.request();
    let mut request = Request::parse(&old, None).unwrap();
    request.inputs[0].data = json!({"texts": ["other"], "dimensions": 8}).to_string();
    let event = request.draft(old.created_at).unwrap().sign(&key(BUYER)).unwrap();
    forged.drop_event(&old.id);
    forged.manifest.works[0].request_id = forged.put_event(&event);
}

pub(super) fn result_by_somebody_else(forged: &mut Forged) {
    let old = forged.result();
    let result = JobResult::parse(&old, None).unwrap();
    forged.put_result(&result.draft(old.created_at).unwrap().sign(&key(9)).unwrap());
}

pub(super) fn result_of_another_request(forged: &mut Forged) {
    let bad = Forged::of(&day().bad);
    let content = forged.result().content;
    let result = JobResult::answering(&bad.request(), content).unwrap();
    forged.put_result(&result.draft(1).unwrap().sign(&key(HONEST)).unwrap());
}

pub(super) fn feedback_by_a_stranger(forged: &mut Forged) {
    let feedback = Feedback::about(&forged.request(), Told::Error);
    let event = feedback.draft(1).unwrap().sign(&key(9)).unwrap();
    let id = forged.put_event(&event);
    forged.manifest.works[0].heard.push(id);
}

pub(super) fn verdict_on_another_result(forged: &mut Forged) {
    let mut verdict = forged.verdict(0);
    verdict["output_hash"] = json!(Hash::of(b"another"));
    forged.put_verdict(0, &verdict);
}

pub(super) fn verdict_that_contradicts_itself(forged: &mut Forged) {
    let mut verdict = forged.verdict(0);
    verdict["passed"] = json!(false);
    forged.put_verdict(0, &verdict);
}

pub(super) fn verdict_on_somebody_else(forged: &mut Forged) {
    let verdict = Forged::of(&day().bad).verdict(0);
    forged.put_verdict(0, &verdict);
}

pub(super) fn verdict_changed_afterwards(forged: &mut Forged) {
    let mut verdict = forged.verdict(0);
    verdict["min_likeness"] = json!(0.5);
    forged.put_verdict(0, &verdict);
}

pub(super) fn state_that_is_not_so(forged: &mut Forged) {
    forged.manifest.works[0].state = "expired".to_owned();
}

pub(super) fn receipt_for_more(forged: &mut Forged) {
    let id = forged.manifest.works[0].receipt_id.clone().unwrap();
    let bytes = forged.files.get_mut(&dossier::receipt_at(&id)).unwrap();
    let text = String::from_utf8(bytes.clone()).unwrap();
    *bytes = text.replace("\"units\":700", "\"units\":900").into_bytes();
    assert_ne!(*bytes, text.into_bytes());
}

pub(super) fn receipt_left_out(forged: &mut Forged) {
    let id = forged.manifest.works[0].receipt_id.take().unwrap();
    forged.files.remove(&dossier::receipt_at(&id));
    forged.files.remove(&slice_path(&forged.manifest));
    forged.files.remove(&replay_path(&forged.manifest));
    for id in std::mem::take(&mut forged.manifest.reviews) {
        forged.drop_event(&id);
    }
}

pub(super) fn receipt_of_another_order(forged: &mut Forged) {
    let mine = forged.manifest.works[0].receipt_id.clone().unwrap();
    let theirs = other().manifest.works[0].receipt_id.clone().unwrap();
    let path = dossier::receipt_at(&theirs);
    forged.files.remove(&dossier::receipt_at(&mine));
    forged.files.insert(path.clone(), other().files[&path].clone());
    forged.manifest.works[0].receipt_id = Some(theirs);
}

pub(super) fn buyer_signs_for_less(forged: &mut Forged) {
    let mut draft = forged.stated(0);
    draft.amount.units = 10;
    forged.sign(0, &draft);
}

pub(super) fn buyer_names_another_transfer(forged: &mut Forged) {
    // A liar is paid, and the receipt says that it was the honest one.
    let mut draft = forged.stated(0);
    let after = Hash::from_bytes([0; 32]);
    let slice = format!(
        "{{\"after\":\"{after}\",\"record\":\"slice\",\"schema_version\":\"guild.ledger_slice.v1\"}}\n"
    );
    let payable = |n: u8| {
        let name = format!("guild.account.v1\n{}\npayable\nBTC_LN", who(n).npub());
        format!("acct_{}", guild_protocol::hash::to_hex(Hash::of(name.as_bytes()).as_bytes()))
    };
    let transfer_id = "xfer_00000000000000000000000000000001";
    let line = json!({
        "at_ms": 1, "credit": payable(LIAR), "debit": payable(9), "expires_ms": null, "hold": null,
        "memo": "order.paid", "record": "transfer", "seq": 1, "step": "post", "transfer_id": transfer_id,
        "units": "700",
    });
    let line = format!("{}\n", String::from_utf8(to_canonical(&line).unwrap()).unwrap());
    let head = Hash::of(&[[0; 32].as_slice(), line.as_bytes()].concat());
    let end = format!("{{\"hash\":\"{head}\",\"last_seq\":1,\"record\":\"head\"}}\n");
    let path = slice_path(&forged.manifest);
    forged.files.insert(path, format!("{slice}{line}{end}").into_bytes());
    draft.payment_proof =
        Some(Proof::LedgerTransfer { transfer_id: transfer_id.to_owned(), ledger_head: head });
    forged.sign(0, &draft);
}

pub(super) fn slice_with_another_amount(forged: &mut Forged) {
    let bytes = forged.files.get_mut(&slice_path(&forged.manifest)).unwrap();
    let text = String::from_utf8(bytes.clone()).unwrap();
    *bytes = text.replace("\"units\":\"700\"", "\"units\":\"701\"").into_bytes();
    assert_ne!(*bytes, text.into_bytes());
}

pub(super) fn slice_of_another_commit(forged: &mut Forged) {
    let theirs = other().files[&slice_path(&other().manifest)].clone();
    forged.files.insert(slice_path(&forged.manifest), theirs);
}

pub(super) fn replay_of_another_order(forged: &mut Forged) {
    let theirs = other().files[&replay_path(&other().manifest)].clone();
    forged.files.insert(replay_path(&forged.manifest), theirs);
}

pub(super) fn buyer_signs_for_another_replay(forged: &mut Forged) {
    let theirs = Forged::of(other()).stated(0);
    let mut draft = forged.stated(0);
    draft.trajectory_hash = theirs.trajectory_hash;
    draft.session_id = theirs.session_id;
    replay_of_another_order(forged);
    forged.sign(0, &draft);
}

/// Another review instead of the one that stays.
fn review(forged: &mut Forged, by: u8, change: impl FnOnce(&mut Review)) {
    let ids = forged.manifest.reviews.clone();
    let old = ids.iter().map(|id| forged.event(id)).find(|event| event.kind == kind::REVIEW);
    let old = old.unwrap();
    let mut review = Review::parse(&old).unwrap();
    change(&mut review);
    let event = review.draft(Form::Review, old.created_at).unwrap().sign(&key(by)).unwrap();
    forged.drop_event(&old.id);
    forged.manifest.reviews.retain(|id| *id != old.id);
    let id = forged.put_event(&event);
    forged.manifest.reviews.push(id);
}

pub(super) fn review_of_another_request(forged: &mut Forged) {
    let theirs = other().manifest.works[0].request_id;
    review(forged, BUYER, |review| review.evidence.request_id = Some(theirs));
}

pub(super) fn review_by_a_stranger(forged: &mut Forged) {
    review(forged, 9, |_| {});
}

pub(super) fn review_with_another_receipt(forged: &mut Forged) {
    review(forged, BUYER, |review| {
        review.evidence.payment.as_mut().unwrap().receipt_hash = Hash::of(b"another");
    });
}

/// The place of a replica that was not paid.
fn liar(forged: &Forged) -> usize {
    forged.manifest.works.iter().position(|work| work.state == "withheld").unwrap()
}

pub(super) fn vote_left_out(forged: &mut Forged) {
    let work = forged.manifest.works.remove(liar(forged));
    let mut gone = vec![dossier::event_at(&work.request_id), replay_path_of(&work.request_id)];
    gone.extend(work.result_id.iter().chain(&work.heard).map(dossier::event_at));
    gone.extend(work.verdict_hash.iter().map(dossier::verdict_at));
    gone.extend(work.receipt_id.iter().map(dossier::receipt_at));
    let ids = forged.manifest.reviews.clone();
    let cites = |id: &EventId| {
        let said = Review::parse(&forged.event(id)).unwrap();
        said.evidence.request_id == Some(work.request_id)
    };
    let (dropped, kept): (Vec<EventId>, Vec<EventId>) = ids.into_iter().partition(cites);
    gone.extend(dropped.iter().map(dossier::event_at));
    forged.manifest.reviews = kept;
    forged.files.retain(|path, _| !gone.contains(path));
}

fn replay_path_of(request: &EventId) -> String {
    dossier::replay_at(request)
}

pub(super) fn somebody_twice(forged: &mut Forged) {
    let again = forged.manifest.works[0].clone();
    forged.manifest.works.push(again);
}

pub(super) fn result_says_something_else(forged: &mut Forged) {
    let place = liar(forged);
    let mut verdict = forged.verdict(place);
    verdict["consensus"]["says"] = json!(Hash::of(b"another"));
    forged.put_verdict(place, &verdict);
}

/// The buyer pays the liars after all: all verdicts agree on it.
pub(super) fn liars_win(forged: &mut Forged) {
    let theirs = forged.verdict(liar(forged))["consensus"]["says"].clone();
    for work in 0..forged.manifest.works.len() {
        if forged.manifest.works[work].verdict_hash.is_none() {
            continue;
        }
        let mut verdict = forged.verdict(work);
        verdict["consensus"]["winner"] = theirs.clone();
        verdict["consensus"]["agreeing"] = json!(2);
        forged.put_verdict(work, &verdict);
    }
}

/// All verdicts agree on another number.
fn agreed_on(forged: &mut Forged, name: &str, number: u32) {
    for work in 0..forged.manifest.works.len() {
        if forged.manifest.works[work].verdict_hash.is_some() {
            let mut verdict = forged.verdict(work);
            verdict["consensus"][name] = json!(number);
            forged.put_verdict(work, &verdict);
        }
    }
}

/// Five were asked at first, and two are said to be enough.
pub(super) fn fewer_are_enough(forged: &mut Forged) {
    agreed_on(forged, "needed", 2);
}

/// More were asked at first than there are.
pub(super) fn more_were_asked(forged: &mut Forged) {
    agreed_on(forged, "asked", 6);
    agreed_on(forged, "needed", 4);
}

pub(super) fn smaller_budget(forged: &mut Forged) {
    forged.manifest.delegation.as_mut().unwrap().budget_msat = 699;
}

pub(super) fn one_of_several_alone(forged: &mut Forged) {
    forged.manifest.delegation = None;
    let paid = forged.manifest.works.iter().find(|work| work.state == "released");
    forged.manifest.works = paid.cloned().into_iter().collect();
    forged.manifest.about = forged.manifest.works[0].request_id.hex();
}

/// The buyer accepts wrong work, writes the verdict that goes with it, and signs for it.
pub(super) fn accepted_although_it_is_wrong(forged: &mut Forged) {
    let mut verdict = forged.verdict(0);
    for check in verdict["checks"].as_array_mut().unwrap() {
        check["ok"] = json!(true);
        check["code"] = Value::Null;
        check["field"] = Value::Null;
    }
    verdict["passed"] = json!(true);
    verdict["score"] = json!(1);
    forged.put_verdict(0, &verdict);
    // It was a free sample, it says: nobody signs for anything.
    forge_free(forged);
}

/// The replay of work that cost nothing.
fn free_replay(forged: &Forged) -> Vec<u8> {
    let at = Timestamp::from_ms(crate::town::T0).unwrap();
    let work = &forged.manifest.works[0];
    let verdict = forged.verdict(0);
    let output_hash = Hash::of(forged.result().content.as_bytes());
    let (mut writer, mut text) = Writer::start(&Start {
        producer: "somebody@1".to_owned(),
        t: at,
        session_id: "session".to_owned(),
        issue_number: None,
        policy_bundle_id: "policy.default".to_owned(),
    })
    .unwrap();
    let hire = json!({
        "request_id": work.request_id, "provider_id": work.provider, "schema_id": work.schema_id,
        "job_hash": verdict["job_hash"], "payload": null, "budget_msat": 0, "price_msat": null,
    });
    let call = |id: &str, params: Value| Line::ToolCall {
        id: id.to_owned(),
        tool: id.to_owned(),
        params,
        step_id: id.to_owned(),
    };
    let answer = |id: &str, output: Output| Line::ToolResult {
        id: id.to_owned(),
        output,
        exit_code: None,
        step_utility: 0.0,
        latency_ms: 0,
    };
    for line in [
        call("hire", hire),
        answer("hire", Output::RawHash(output_hash)),
        call("verify", json!({ "output_hash": output_hash })),
        answer("verify", Output::Json(verdict)),
    ] {
        text.extend(writer.push(at, &line).unwrap());
    }
    text.extend(writer.finish(at, SessionStatus::Success, 1.0).unwrap().line);
    text
}

/// Work that nobody paid: without a receipt, for a bid of nothing.
fn forge_free(forged: &mut Forged) {
    let work = &mut forged.manifest.works[0];
    work.state = "released".to_owned();
    let receipt_id = work.receipt_id.take().unwrap();
    let replay = dossier::replay_at(&work.request_id);
    forged.files.remove(&dossier::receipt_at(&receipt_id));
    forged.files.remove(&replay);
    for id in std::mem::take(&mut forged.manifest.reviews) {
        forged.drop_event(&id);
    }
    for id in std::mem::take(&mut forged.manifest.works[0].heard) {
        forged.drop_event(&id);
    }
    let old = forged.request();
    let mut request = Request::parse(&old, None).unwrap();
    request.bid = Some(Msat(0));
    let request = request.draft(old.created_at).unwrap().sign(&key(BUYER)).unwrap();
    let content = forged.result().content;
    let result = JobResult::answering(&request, content).unwrap();
    forged.put_result(&result.draft(old.created_at).unwrap().sign(&key(LIAR)).unwrap());
    forged.drop_event(&old.id);
    forged.manifest.works[0].request_id = forged.put_event(&request);
    forged.manifest.about = request.id.hex();
    let replay = free_replay(forged);
    forged.files.insert(dossier::replay_at(&request.id), replay);
}
