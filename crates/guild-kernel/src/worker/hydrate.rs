//! Reads all that turns need, for a whole set of them at once, and understands it. What cannot be read concerns only
//! the turns that need it: rows are taken as they are, and looked at afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use guild_store::{Columns, Decode, Rx, Val};
use serde_json::Value;

use super::Worker;
use super::profile::{DISPLAY_NAME, DOWNSTREAM, Neighbour, Profile};
use super::prompt::{Cards, Seen, reasoning_of};
use super::task::{Loaded, Mind};
use super::toolbox::{ToolRow, Toolbox};
use crate::card::CardType;
use crate::row::{Int, Statement, Text};
use crate::turn::Claimed;
use crate::{BoxId, Error, Result, code};

/// Of a box a turn sees its newest cards: so many,
const CARDS_MAX: i64 = 1_000;
/// and so many bytes of them.
const BOX_MAX_BYTES: usize = 8 * 1024 * 1024;
/// The most tools and profiles of a project.
const ROWS_MAX: i64 = 1_000;

/// The first columns of a row, as far as they are texts.
struct Texts<const N: usize>([Option<String>; N]);

impl<const N: usize> Decode for Texts<N> {
    fn decode(row: &dyn Columns) -> guild_store::Result<Texts<N>> {
        Ok(Texts(std::array::from_fn(|at| match row.val(at) {
            Ok(Val::Text(text)) => Some(text.to_owned()),
            _ => None,
        })))
    }
}

static CARDS: LazyLock<Statement> = LazyLock::new(|| {
    let columns = "c.card_id, c.type, c.agent_turn_id, c.tool_call_id, c.content, c.metadata";
    let rest = "ORDER BY e.place DESC LIMIT";
    Statement::pair(
        &[Text, Int],
        format!(
            "SELECT e.box_id, {columns}, e.place
             FROM card_box_entries AS e JOIN cards AS c ON c.card_id = e.card_id
             WHERE e.box_id = $1 {rest} $2"
        ),
        format!(
            "SELECT q.* FROM unnest($1::text[], $2::bigint[]) AS v (box_id, count),
             LATERAL (SELECT e.box_id, {columns}, e.place
               FROM card_box_entries AS e JOIN cards AS c ON c.card_id = e.card_id
               WHERE e.box_id = v.box_id {rest} v.count) AS q ORDER BY q.box_id, q.place DESC"
        ),
    )
});
static PROFILES: LazyLock<Statement> = LazyLock::new(|| {
    let fields = [("project_id", Text), ("name", Text), ("body", Text)];
    Statement::select("profiles", &fields, &[("project_id", Text), ("name", Text)], "")
});
static NEIGHBOURS: LazyLock<Statement> =
    LazyLock::new(|| all_of_project("profiles", "project_id, name, body", "name"));
static TOOLS: LazyLock<Statement> = LazyLock::new(|| {
    let columns =
        "project_id, tool_name, description, parameters, target_subject, after_execution, options";
    all_of_project("tools", columns, "tool_name")
});
static NAMES: LazyLock<Statement> = LazyLock::new(|| {
    let keys = [("project_id", Text), ("agent_id", Text)];
    let fields = [("project_id", Text), ("agent_id", Text), ("display_name", Text)];
    Statement::select("project_agents", &fields, &keys, "")
});

fn all_of_project(table: &str, columns: &str, order: &str) -> Statement {
    Statement::pair(
        &[Text, Int],
        format!("SELECT {columns} FROM {table} WHERE project_id = $1 ORDER BY {order} LIMIT $2"),
        format!(
            "SELECT q.* FROM unnest($1::text[], $2::bigint[]) AS v (of_project, count),
             LATERAL (SELECT {columns} FROM {table} WHERE project_id = v.of_project
               ORDER BY {order} LIMIT v.count) AS q"
        ),
    )
}

/// What workers ask again and again.
#[cfg(test)]
pub(super) fn statements() -> [&'static LazyLock<Statement>; 5] {
    [&CARDS, &PROFILES, &NEIGHBOURS, &TOOLS, &NAMES]
}

/// Rows that turns need.
pub(super) struct Rows {
    claimed: Vec<Claimed>,
    profiles: Vec<Texts<3>>,
    neighbours: Vec<Texts<3>>,
    tools: Vec<Texts<7>>,
    names: Vec<Texts<3>>,
    cards: Vec<Texts<7>>,
}

/// Reads what these turns need: a handful of statements, however many they are.
pub(super) fn read(rx: &mut Rx<'_>, claimed: Vec<Claimed>) -> Result<Rows> {
    let of = |one: &'_ Claimed| one.fence.key.project_id.as_str().to_owned();
    let asked: BTreeSet<(String, &str)> =
        claimed.iter().map(|one| (of(one), one.profile_name.as_str())).collect();
    let keys: Vec<Vec<Val<'_>>> =
        asked.iter().map(|(project, name)| vec![project.as_str().into(), (*name).into()]).collect();
    let profiles: Vec<Texts<3>> = PROFILES.read(rx, &keys)?;
    let says = |word: &str| {
        profiles.iter().any(|Texts([_, _, body])| body.as_ref().is_some_and(|b| b.contains(word)))
    };
    let projects: BTreeSet<&str> =
        claimed.iter().map(|one| one.fence.key.project_id.as_str()).collect();
    let projects: Vec<Vec<Val<'_>>> =
        projects.into_iter().map(|project| vec![project.into(), ROWS_MAX.into()]).collect();
    let tools = TOOLS.read(rx, &projects)?;
    let neighbours = if says(DOWNSTREAM) { NEIGHBOURS.read(rx, &projects)? } else { Vec::new() };
    let names = if says(DISPLAY_NAME) {
        let agents: BTreeSet<_> = claimed.iter().map(|one| &one.fence.key).collect();
        let keys: Vec<Vec<Val<'_>>> = agents
            .into_iter()
            .map(|key| vec![key.project_id.as_str().into(), key.agent_id.as_str().into()])
            .collect();
        NAMES.read(rx, &keys)?
    } else {
        Vec::new()
    };
    let boxes: BTreeSet<&BoxId> =
        claimed.iter().flat_map(|one| [&one.context_box_id, &one.output_box_id]).collect();
    let boxes: Vec<Vec<Val<'_>>> = boxes
        .into_iter()
        .map(|id| vec![id.as_str().into(), CARDS_MAX.saturating_add(1).into()])
        .collect();
    let cards = CARDS.read(rx, &boxes)?;
    Ok(Rows { claimed, profiles, neighbours, tools, names, cards })
}

/// Cards of a box, the newest first until it is whole.
#[derive(Default)]
struct BoxCards {
    seen: Vec<Seen>,
    bytes: usize,
    count: i64,
    warnings: Vec<String>,
}

impl BoxCards {
    fn add(&mut self, texts: [Option<String>; 6]) {
        let [card_id, card_type, agent_turn_id, tool_call_id, content, metadata] = texts;
        let (card_id, content) = (card_id.unwrap_or_default(), content.unwrap_or_default());
        self.bytes = self.bytes.saturating_add(content.len());
        self.count = self.count.saturating_add(1);
        if self.is_too_large() {
            return;
        }
        let read = (|| {
            let card_type: CardType =
                card_type.unwrap_or_default().parse().map_err(|e: Error| e.to_string())?;
            let content: Value = serde_json::from_str(&content).map_err(|e| e.to_string())?;
            let metadata = metadata.filter(|text| text.contains("reasoning_content"));
            let metadata: Option<Value> =
                metadata.and_then(|text| serde_json::from_str(&text).ok());
            Ok::<_, String>((card_type, content, metadata.as_ref().and_then(reasoning_of)))
        })();
        match read {
            Err(why) => self.warnings.push(format!("{card_id} cannot be read: {why}")),
            Ok((card_type, content, reasoning)) => self.seen.push(Seen {
                card_id,
                card_type,
                agent_turn_id,
                tool_call_id,
                content,
                reasoning,
            }),
        }
    }

    /// One card more is read than is seen: it says that there are more.
    fn is_too_large(&self) -> bool {
        self.bytes > BOX_MAX_BYTES || self.count > CARDS_MAX
    }

    fn whole(mut self) -> (Arc<Vec<Seen>>, Vec<String>) {
        self.seen.reverse();
        if self.is_too_large() {
            self.warnings.push("a box is too large; its oldest cards are not seen".to_owned());
        }
        (Arc::new(self.seen), self.warnings)
    }
}

/// What turns with the same profile share.
type Shared = (Arc<Profile>, Arc<Toolbox>);

/// What is known of all turns of a batch, each thing once.
struct Known {
    profiles: BTreeMap<(String, String), String>,
    neighbours: BTreeMap<String, Vec<Neighbour>>,
    tools: BTreeMap<String, Vec<ToolRow>>,
    names: BTreeMap<(String, String), String>,
    boxes: BTreeMap<String, (Arc<Vec<Seen>>, Vec<String>)>,
    minds: BTreeMap<(String, String), Result<Shared, String>>,
}

impl Known {
    fn new(rows: Rows) -> (Vec<Claimed>, Known) {
        let mut boxes: BTreeMap<String, BoxCards> = BTreeMap::new();
        for Texts([box_id, a, b, c, d, e, f]) in rows.cards {
            boxes.entry(box_id.unwrap_or_default()).or_default().add([a, b, c, d, e, f]);
        }
        let mut tools: BTreeMap<String, Vec<ToolRow>> = BTreeMap::new();
        for Texts([project, tool_name, description, parameters, target, after, options]) in
            rows.tools
        {
            tools.entry(project.unwrap_or_default()).or_default().push(ToolRow {
                tool_name: tool_name.unwrap_or_default(),
                description: description.unwrap_or_default(),
                parameters: parameters.unwrap_or_default(),
                target_subject: target,
                after_execution: after.unwrap_or_default(),
                options: options.unwrap_or_default(),
            });
        }
        let mut neighbours: BTreeMap<String, Vec<Neighbour>> = BTreeMap::new();
        for Texts([project, name, body]) in rows.neighbours {
            if let Ok(profile) = Profile::parse(&body.unwrap_or_default()) {
                let name = name.unwrap_or_default();
                let known = neighbours.entry(project.unwrap_or_default()).or_default();
                known.push(Neighbour { name, profile });
            }
        }
        let named = |rows: Vec<Texts<3>>| {
            rows.into_iter()
                .filter_map(|Texts([project, name, said])| Some(((project?, name?), said?)))
                .collect()
        };
        let known = Known {
            profiles: named(rows.profiles),
            neighbours,
            tools,
            names: named(rows.names),
            boxes: boxes.into_iter().map(|(id, cards)| (id, cards.whole())).collect(),
            minds: BTreeMap::new(),
        };
        (rows.claimed, known)
    }

    fn cards(&self, box_id: &BoxId, warnings: &mut Vec<String>) -> Arc<Vec<Seen>> {
        let Some((cards, said)) = self.boxes.get(box_id.as_str()) else { return Arc::default() };
        warnings.extend(said.iter().cloned());
        cards.clone()
    }
}

impl Worker {
    /// Understands what was read.
    pub(super) fn understand_rows(&self, rows: Rows) -> Vec<Loaded> {
        let (claimed, mut known) = Known::new(rows);
        claimed.into_iter().map(|one| self.load(one, &mut known)).collect()
    }

    fn load(&self, claimed: Claimed, known: &mut Known) -> Loaded {
        let mut warnings = Vec::new();
        let cards = Cards {
            context: known.cards(&claimed.context_box_id, &mut warnings),
            output: known.cards(&claimed.output_box_id, &mut warnings),
            new: Vec::new(),
        };
        let mind = self.mind(&claimed, known).map_err(|message| (&code::BAD_PROFILE, message));
        Loaded::new(claimed, mind, cards, warnings)
    }

    fn mind(&self, claimed: &Claimed, known: &mut Known) -> Result<Mind, String> {
        let project = claimed.fence.key.project_id.as_str().to_owned();
        let key = (project.clone(), claimed.profile_name.clone());
        if !known.minds.contains_key(&key) {
            let body = known.profiles.get(&key).map(String::as_str);
            let mind = body.ok_or_else(|| "it is not there".to_owned()).and_then(|body| {
                let profile = Profile::parse(body)?;
                let rows = known.tools.get(&project).map(Vec::as_slice).unwrap_or_default();
                let toolbox = Toolbox::new(&profile, rows, &self.parts.tools);
                Ok((Arc::new(profile), Arc::new(toolbox)))
            });
            known.minds.insert(key.clone(), mind);
        }
        let Some(mind) = known.minds.get(&key) else { return Err("it is not there".to_owned()) };
        let (profile, toolbox) = mind.clone()?;
        let agent_id = claimed.fence.key.agent_id.as_str().to_owned();
        let name = known.names.get(&(project.clone(), agent_id.clone()));
        let neighbours = known.neighbours.get(&project).map(Vec::as_slice).unwrap_or_default();
        let system = profile.system_prompt(name.unwrap_or(&agent_id), neighbours);
        Ok(Mind { profile, toolbox, system })
    }
}
