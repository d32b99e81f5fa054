//! Which source drafts, and what a model allows.

use super::error::SpeculationError;
use super::tree::DraftTree;
use super::wanted::Wanted;
use genai_config_schema::counted;
use std::fmt;
use std::str::FromStr;

/// Drafts of one row, whatever the model captures: the most that `checkpoint_count` 8 allows.
const MOST_DRAFTS: usize = 7;

/// Why a tree has no branches.
const NO_BRANCHES: &str = "one row per step leaves no room for branches, so trees are chains; \
                           load the model for more requests at once";

/// The same where rows cannot be copied.
const OUT_OF_REACH: &str = "rows that branch off copy parts of the cache, which the host cannot reach on this provider, so \
                            trees are chains";

/// Why `auto` has less to choose from.
const NO_HEAD: &str = "the model has no drafting head, so only lookups draft";

/// Rows of one tree, at most, where its nodes are few: else one for two nodes.
const TREE_WIDTH: usize = 4;

/// Drafts of one tree where the caller does not say, and the most that can be asked for.
const TREE_NODES: usize = 8;
const MOST_TREE_NODES: usize = 16;

/// Drafts of one row where neither caller nor model say.
const DEFAULT_DRAFTS: usize = 3;

/// Where drafts come from.
///
/// ```
/// use pawl::Speculation;
///
/// assert_eq!("ngram".parse(), Ok(Speculation::Ngram));
/// assert!("always".parse::<Speculation>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Speculation {
    /// Nowhere: every step generates one token per request.
    Off,
    /// The request's own prompt and output: what followed the last time the same tokens stood there.
    Ngram,
    /// The model's multi-token-prediction head.
    Mtp,
    /// Trees of drafts: several guesses of the next tokens side by side, from the head where there is one, else from what
    /// followed the same tokens before.
    Tree,
    /// The head and lookups, in chains or in trees, whichever promises more.
    Auto,
}

impl Speculation {
    /// Every mode, in the order of help texts.
    ///
    /// ```
    /// use pawl::Speculation;
    ///
    /// assert!(Speculation::ALL.iter().all(|mode| mode.to_string().parse() == Ok(*mode)));
    /// ```
    pub const ALL: [Self; 5] = [Self::Off, Self::Ngram, Self::Mtp, Self::Tree, Self::Auto];

    /// Whether it uses a model's head, where there is one.
    pub(crate) fn heads(self) -> bool {
        matches!(self, Self::Mtp | Self::Tree | Self::Auto)
    }

    /// Whether it drafts trees.
    pub(crate) fn branches(self) -> bool {
        matches!(self, Self::Tree | Self::Auto)
    }

    /// Whether it looks up what followed the same tokens.
    pub(crate) fn looks_up(self, head: bool) -> bool {
        match self {
            Self::Ngram | Self::Auto => true,
            Self::Tree => !head,
            Self::Off | Self::Mtp => false,
        }
    }
}

/// Whether the number of drafts follows what they bring.
///
/// ```
/// use pawl::DraftPolicy;
///
/// assert_eq!("fixed".parse(), Ok(DraftPolicy::Fixed));
/// assert_eq!(DraftPolicy::default().to_string(), "adaptive");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DraftPolicy {
    /// Source, length and width are chosen for every step by expected tokens per second, from what steps have cost and how
    /// many drafts were kept; nothing is drafted where that is faster. It changes speed, never text.
    #[default]
    Adaptive,
    /// Always as many drafts as allowed.
    Fixed,
}

impl fmt::Display for DraftPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Adaptive => "adaptive",
            Self::Fixed => "fixed",
        })
    }
}

impl FromStr for DraftPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "adaptive" => Ok(Self::Adaptive),
            "fixed" => Ok(Self::Fixed),
            other => Err(format!("`{other}` is not one of adaptive, fixed")),
        }
    }
}

impl fmt::Display for Speculation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::Ngram => "ngram",
            Self::Mtp => "mtp",
            Self::Tree => "tree",
            Self::Auto => "auto",
        })
    }
}

impl FromStr for Speculation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|mode| mode.to_string() == text);
        known.ok_or_else(|| format!("`{text}` is not one of off, ngram, mtp, tree, auto"))
    }
}

/// What speculation an engine runs, and why it is not what was asked for, where it is not.
///
/// ```no_run
/// # use pawl::{Engine, EngineOptions, LoadOptions, Model};
/// # let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
/// # let engine = Engine::new(model, &EngineOptions::default())?;
/// if let Some(reason) = &engine.speculation().reason {
///     eprintln!("drafts: {reason}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EffectiveSpeculation {
    /// The source.
    pub mode: Speculation,
    /// Drafts of one row, at most; 0 when off.
    pub max_drafts: usize,
    /// Rows of one tree, at most; 1 without branches. It holds for trees that callers supply, too.
    pub width: usize,
    /// Drafts of one tree, at most; 0 without branches.
    pub tree_nodes: usize,
    /// Whether the number of drafts follows what they bring.
    pub policy: DraftPolicy,
    /// Why it is less than was asked for: nothing is drafted although nobody switched it off, trees have no branches, or
    /// [`Speculation::Auto`] has no head to choose. What is given up later is told by [`SpeculationStats::fallbacks`](crate::SpeculationStats::fallbacks).
    pub reason: Option<String>,
}

impl fmt::Display for EffectiveSpeculation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.reason, self.mode) {
            (Some(reason), _) => write!(f, "{}: {reason}", self.mode),
            (None, Speculation::Off) => f.write_str("off"),
            (None, mode) => write!(
                f,
                "{mode}, up to {}, {}",
                counted(self.max_drafts, "draft"),
                self.policy
            ),
        }
    }
}

/// What a loaded model offers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    /// Whether it has a head.
    pub(crate) head: bool,
    /// Tokens a row may run when it drafts; `usize::MAX` for a model without fixed state.
    pub(crate) capture_capacity: usize,
    /// Rows that one step may run.
    pub(crate) rows: usize,
    /// Whether the host can copy rows of the cache.
    pub(crate) in_reach: bool,
    /// `speculative.max_draft_tokens` of its file.
    pub(crate) configured: Option<usize>,
}

impl EffectiveSpeculation {
    /// What is run where nothing is asked for but a mode, if that: never more than there is.
    pub(crate) fn within(mode: Option<Speculation>, offer: Offer) -> Self {
        let wanted = Wanted {
            mode,
            ..Wanted::default()
        };
        Self::choose(&wanted, offer)
            .unwrap_or_else(|refused| Self::off(DraftPolicy::default(), Some(refused.to_string())))
    }

    fn off(policy: DraftPolicy, reason: Option<String>) -> Self {
        Self {
            mode: Speculation::Off,
            max_drafts: 0,
            width: 1,
            tree_nodes: 0,
            policy,
            reason,
        }
    }

    /// Chooses the mode: what was asked for, else the head where there is one, else n-grams.
    pub(crate) fn choose(wanted: &Wanted, offer: Offer) -> Result<Self, SpeculationError> {
        let policy = wanted.policy.unwrap_or_default();
        let most = offer.capture_capacity.saturating_sub(1).min(MOST_DRAFTS);
        let off = |reason| Ok(Self::off(policy, reason));
        let mode = match wanted.mode {
            Some(Speculation::Off) => {
                wanted.refuse_unused(Speculation::Off)?;
                return off(None);
            }
            Some(Speculation::Mtp) if !offer.head => return Err(SpeculationError::NoHead),
            Some(mode) => mode,
            None if most == 0 => {
                return off(Some(
                    "the model was exported without checkpoints".to_owned(),
                ));
            }
            None if offer.head => Speculation::Mtp,
            None => Speculation::Ngram,
        };
        if most == 0 {
            return Err(SpeculationError::NoCheckpoints { mode });
        }
        wanted.refuse_unused(mode)?;
        // A fixed number has to pay on average; an adaptive one goes as far as it pays.
        let default = match policy {
            DraftPolicy::Adaptive => most,
            DraftPolicy::Fixed => offer
                .configured
                .unwrap_or(DEFAULT_DRAFTS)
                .min(DEFAULT_DRAFTS)
                .min(most),
        };
        let max_drafts = wanted.max_drafts.unwrap_or(default);
        if max_drafts == 0 || max_drafts > most {
            return Err(SpeculationError::MaxDrafts {
                wanted: max_drafts,
                most,
            });
        }
        let tree = mode == Speculation::Tree;
        let tree_nodes = wanted.tree_nodes.unwrap_or(TREE_NODES);
        if tree_nodes == 0 || tree_nodes > MOST_TREE_NODES {
            return Err(SpeculationError::TreeNodes {
                wanted: tree_nodes,
                most: MOST_TREE_NODES,
            });
        }
        let (width, reason) = match mode {
            Speculation::Tree => width(tree_nodes, offer),
            // Trees are one of several things to choose from: nothing is missing without them.
            Speculation::Auto => {
                let reason = (!offer.head).then_some(NO_HEAD);
                (width(tree_nodes, offer).0, reason)
            }
            Speculation::Off | Speculation::Ngram | Speculation::Mtp => (1, None),
        };
        Ok(Self {
            mode,
            max_drafts: if tree {
                max_drafts.min(tree_nodes)
            } else {
                max_drafts
            },
            width,
            tree_nodes: if width > 1 { tree_nodes } else { 0 },
            policy,
            reason: reason.map(str::to_owned),
        })
    }
}

/// Rows of a tree of so many nodes, and why they are fewer than that would take.
fn width(nodes: usize, offer: Offer) -> (usize, Option<&'static str>) {
    if !offer.in_reach {
        return (1, Some(OUT_OF_REACH));
    }
    if offer.rows < 2 {
        return (1, Some(NO_BRANCHES));
    }
    let wanted = nodes.div_ceil(2).max(TREE_WIDTH).min(nodes);
    (wanted.min(offer.rows), None)
}

/// Drafts supplied by the caller of one request, for texts that are largely known beforehand.
///
/// Called before each step with all tokens of the request so far (prompt and generated) and the most drafts that can be
/// used; returns guesses of the tokens that follow. Wrong guesses cost time, never text. Branches are run where the engine
/// drafts trees ([`EffectiveSpeculation::width`]); elsewhere the first guess of each token is taken.
///
/// ```
/// use pawl::DraftSource;
///
/// /// Drafts the last token again.
/// struct Repeat;
///
/// impl DraftSource for Repeat {
///     fn propose(&self, tokens: &[u32], most: usize) -> Vec<u32> {
///         tokens.last().map_or(Vec::new(), |last| vec![*last; most])
///     }
/// }
///
/// assert_eq!(Repeat.propose(&[4, 5], 3), [5, 5, 5]);
/// let request = pawl::Request::from_ids([1]).drafts(Repeat);
/// # let _ = request;
/// ```
pub trait DraftSource: Send + Sync {
    /// The drafts; fewer than `most` or none is fine, more are cut.
    fn propose(&self, tokens: &[u32], most: usize) -> Vec<u32>;

    /// The drafts as a tree, where the next tokens are guessed in several ways. `most` drafts along one path can be used.
    ///
    /// # Errors
    /// Whatever the source says: it is not asked again for this request, which goes on without it.
    fn propose_tree(
        &self,
        tokens: &[u32],
        most: usize,
    ) -> Result<DraftTree, Box<dyn std::error::Error + Send + Sync>> {
        Ok(DraftTree::chain(self.propose(tokens, most)))
    }
}

impl<F: Fn(&[u32], usize) -> Vec<u32> + Send + Sync> DraftSource for F {
    fn propose(&self, tokens: &[u32], most: usize) -> Vec<u32> {
        self(tokens, most)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::speculate) const OFFER: Offer = Offer {
        head: true,
        capture_capacity: 8,
        rows: 8,
        in_reach: true,
        configured: Some(7),
    };

    fn mode(wanted: Option<Speculation>, drafts: Option<usize>, offer: Offer) -> String {
        let wanted = Wanted {
            mode: wanted,
            max_drafts: drafts,
            policy: Some(DraftPolicy::Fixed),
            ..Wanted::default()
        };
        match EffectiveSpeculation::choose(&wanted, offer) {
            Ok(effective) => effective.to_string(),
            Err(error) => error.to_string(),
        }
    }

    /// Width and nodes are those of the trees that can be run.
    #[test]
    fn a_tree_has_the_rows_that_there_are() {
        let of = |nodes, offer| {
            let wanted = Wanted {
                mode: Some(Speculation::Tree),
                tree_nodes: Some(nodes),
                ..Wanted::default()
            };
            let chosen = EffectiveSpeculation::choose(&wanted, offer).unwrap();
            assert_eq!(chosen.reason.is_some(), offer.rows < 2 || !offer.in_reach);
            (chosen.width, chosen.tree_nodes, chosen.max_drafts)
        };
        assert_eq!(of(8, OFFER), (4, 8, 7));
        assert_eq!(of(16, OFFER), (8, 16, 7));
        assert_eq!(of(3, OFFER), (3, 3, 3));
        assert_eq!(of(1, OFFER), (1, 0, 1));
        assert_eq!(of(8, Offer { rows: 3, ..OFFER }), (3, 8, 7));
        assert_eq!(of(8, Offer { rows: 1, ..OFFER }), (1, 0, 7));
        let far = Offer {
            in_reach: false,
            ..OFFER
        };
        assert_eq!(of(8, far), (1, 0, 7));
        let auto = Wanted {
            mode: Some(Speculation::Auto),
            ..Wanted::default()
        };
        let auto = |offer| EffectiveSpeculation::choose(&auto, offer).unwrap();
        assert_eq!((auto(OFFER).width, auto(OFFER).tree_nodes), (4, 8));
        assert_eq!((auto(far).width, auto(far).reason), (1, None));
        let headless = auto(Offer {
            head: false,
            ..OFFER
        });
        assert_eq!((headless.width, headless.tree_nodes), (4, 8));
        assert_eq!(
            headless.to_string(),
            "auto: the model has no drafting head, so only lookups draft"
        );
    }

    #[test]
    fn the_head_is_the_default_where_there_is_one() {
        assert_eq!(mode(None, None, OFFER), "mtp, up to 3 drafts, fixed");
        assert_eq!(
            mode(
                None,
                None,
                Offer {
                    head: false,
                    ..OFFER
                }
            ),
            "ngram, up to 3 drafts, fixed"
        );
        assert_eq!(mode(Some(Speculation::Off), None, OFFER), "off");
        assert_eq!(
            mode(Some(Speculation::Ngram), Some(7), OFFER),
            "ngram, up to 7 drafts, fixed"
        );
        let tree = mode(Some(Speculation::Tree), None, OFFER);
        assert_eq!(tree, "tree, up to 3 drafts, fixed");
        let narrow = Offer { rows: 1, ..OFFER };
        assert!(mode(Some(Speculation::Tree), None, narrow).contains("no room for branches"));
        let far = Offer {
            in_reach: false,
            ..OFFER
        };
        assert!(mode(Some(Speculation::Tree), None, far).contains("cannot reach"));
        let attention = Offer {
            capture_capacity: usize::MAX,
            ..OFFER
        };
        assert_eq!(mode(None, Some(7), attention), "mtp, up to 7 drafts, fixed");
        assert_eq!(
            mode(
                None,
                None,
                Offer {
                    capture_capacity: 3,
                    ..OFFER
                }
            ),
            "mtp, up to 2 drafts, fixed"
        );
    }

    #[test]
    fn what_cannot_be_had_is_said() {
        assert!(
            mode(
                Some(Speculation::Mtp),
                None,
                Offer {
                    head: false,
                    ..OFFER
                }
            )
            .contains("no drafting head")
        );
        let bare = Offer {
            capture_capacity: 0,
            ..OFFER
        };
        assert!(mode(Some(Speculation::Ngram), None, bare).contains("without checkpoints"));
        assert_eq!(
            mode(None, None, bare),
            "off: the model was exported without checkpoints"
        );
        assert!(mode(None, Some(8), OFFER).contains("1 to 7"));
        assert!(mode(None, Some(0), OFFER).contains("1 to 7"));
    }
}
