//! Limits: what is refused because it is too much, and why the bound is where it is.
//!
//! Whatever comes from outside (a model folder, a template, a prompt) is bounded before it is used. All bounds of this
//! crate are in one module of constants, and each has its line here. Those of the configuration's format are
//! `genai_config_schema::MAX_BYTES` (1 MiB), `MAX_DEPTH` (24) and `MAX_ERRORS` (1000); those of checkpoints are in
//! `pawl-builder`'s module `limits` and in `pawl_models::limits`, those of traces in `pawl-cli`'s.
//!
//! Files are opened only when they are regular files, links followed: a pipe would wait for a writer, a device never
//! end. Files that a configuration names must stay in the model folder, also through links.
//!
//! # Graphs
//!
//! Fields, items and names are counted over all graphs of a model. A graph is a program: of its nodes, only `If` may hold
//! graphs, and there are no functions. What operators compute and allocate in a step is not bounded; ONNX Runtime has no
//! bound for it either.
//!
//! | constant | value | why |
//! |---|---|---|
//! | `GRAPH_BYTES` | 2147483647 | a protobuf message cannot be longer |
//! | `GRAPH_FIELDS` | 4194304 | reading more takes seconds; a graph of 10,000 nodes has 300,000 |
//! | `GRAPH_ITEMS` | 131072 | each node or tensor takes some 200 bytes in memory, whatever it takes in the file |
//! | `GRAPH_VALUES` | 16384 | a thousand layers have a few thousand, and each state is looked for among them |
//! | `GRAPH_DEPTH` | 8 | branches of branches are rare, and the reader calls itself for each |
//! | `GRAPH_NAME_BYTES` | 65536 | no name is longer |
//! | `GRAPH_TEXT_BYTES` | 67108864 | all names together are kept in memory |
//! | `GRAPH_SHAPE_BYTES` | 1024 | no tensor has more than a hundred axes |
//!
//! # Tokenizers
//!
//! The code that reads and runs `tokenizer.json` is not Pawl's. It runs on a thread of its own; a panic is an error, and
//! so is a task that is not done in time. A thread cannot be stopped: a tokenizer that was too slow once is not used again.
//! Decoding runs where the engine steps, and takes time by the length of a few tokens: a decoder has no patterns.
//!
//! | constant | value | why |
//! |---|---|---|
//! | `TOKENIZER_BYTES` | 67108864 | the largest vocabularies take 40 MB; in memory they take ten times that |
//! | `TOKENIZER_STEPS` | 64 | no pipeline has ten |
//! | `TOKENIZER_GROWTH` | 1024 | steps multiply what others made of a text; the longest usual pipeline could make 726 times as much |
//! | `TOKENIZER_DECODED` | 16 | decoders take away or put one letter for another; the engine waits for them |
//! | `TOKENIZER_TEXT` | 25165824 | a text times its growth: a million tokens hold 4 MB, and usual steps can make that six times longer; a tokenizer takes 150 bytes per byte at worst |
//! | `TOKENIZER_REPLACEMENT` | 256 | the longest replacement of a Unicode character has 33 bytes, the unknown word ten |
//! | `TOKENIZER_WORD` | 4096 | every token of a text is a copy of it; the longest published have some hundred bytes |
//! | `TOKENIZER_ADDED` | 1024 | usual templates add two |
//! | `PATTERN_BYTES` | 16384 | usual patterns have 300 bytes, and a program grows with its pattern |
//! | `PATTERN_REPEATS` | 10000 | counted repetitions are written out, inner ones once for each outer one |
//! | `TOKENIZER_STACK` | 67108864 | parsers and steps call themselves as deep as the file nests |
//! | `TOKENIZER_LOAD` | 120 s | the largest takes seconds, on a busy machine more |
//! | `TOKENIZE` | 10 s | a prompt takes milliseconds; a pattern that backtracks has no end |
//! | `TOKENIZE_PER_BYTE` | 20 us | what slow tokenizers need, a hundred times over |
//! | `SUPPLIED_NODES` | 256 | sixteen times the largest budget of a tree; work over a tree is quadratic in its nodes |
//! | `PROMPT_BYTES` | 8388608 | contexts of a million tokens hold 4 MB of text; what a tokenizer may make of it is bounded as well |
//!
//! # Chat templates
//!
//! A template is a program. It runs on a thread of its own as well, with fuel for instructions and data, and every list or
//! mapping that it makes is walked once: the engine itself does not notice a value of 2^40 parts, or one that holds itself.
//! What a format text could become is counted before it is filled in.
//!
//! | constant | value | why |
//! |---|---|---|
//! | `TEMPLATE_BYTES` | 262144 | the longest published have 40 KB; the parser calls itself once for a sign or a bracket |
//! | `TEMPLATE_JSON_BYTES` | 16777216 | some `tokenizer_config.json` list a vocabulary |
//! | `TEMPLATE_FUEL` | 1000000 | a long chat needs a hundredth; it buys 64 MB of data |
//! | `TEMPLATE_FUEL_PER_BYTE` | 16 | a template handles each byte of the chat a few times |
//! | `TEMPLATE_FUEL_MOST` | 8000000 | buys 512 MB of data, most of it let go before the end |
//! | `TEMPLATE_COLUMNS` | 9999 | more spaces than a line has; what all fields ask for together counts towards `TEMPLATE_OUTPUT` |
//! | `TEMPLATE_DATE_BYTES` | 1024 | dates have ten letters; five letters of a format can ask for 255 |
//! | `TEMPLATE_CALLS` | 128 | macros call each other two or three deep |
//! | `TEMPLATE_DEPTH` | 128 | JSON readers stop there, too |
//! | `TEMPLATE_VALUES` | 1048576 | more than a chat that fits a context has |
//! | `TEMPLATE_OUTPUT` | 67108864 | more than a prompt can have |
//! | `TEMPLATE_STACK` | 268435456 | for the longest chain of signs that a template can hold; unused pages cost nothing |
//! | `TEMPLATE_TIME` | 5 s | a rendering takes milliseconds |
//!
//! # Grammars
//!
//! The code that reads grammars is not Pawl's either. It runs like that of tokenizers; what a grammar may come to is
//! bounded by that code (250,000 states of 2 kB, 50,000 items and 200,000 units of work for one mask, some 20 ms), and more
//! is an error of the request that asks for it.
//!
//! | constant | value | why |
//! |---|---|---|
//! | `GRAMMAR_BYTES` | 262144 | rules that refer to each other are read as deep as they go; schemas of thousands of lines have 100 kB |
//! | `GRAMMAR_TOKEN` | 512 | tokens are walked letter by letter, and none but lines of one sign are longer |
//! | `GRAMMAR_STACK` | 268435456 | twice what a chain of as many rules as a grammar can hold takes; unused pages cost nothing |
//! | `GRAMMAR_TIME` | 20 s | the largest take a second; so do vocabularies, once per engine |
//!
//! # Requests and memory
//!
//! | constant | value | why |
//! |---|---|---|
//! | `STOP_BYTES` | 262144 | stop strings become an automaton of forty times their size |
//! | `SHARED_TOKENS` | 262144 | about 70 bytes each for looking up what followed them; the oldest texts are forgotten |
//! | `UNFINISHED` | 1024 | each waiting request keeps its prompt; the caller may choose another number |
//! | `THREADS` | 256 | a session starts all threads at once, and a number that a machine cannot have takes it down |
//! | `COSTS_BYTES` | 4194304 | a table of as many costs as are kept takes 3 MB |
//! | `CACHE_BYTES` | 2147483648 | a cache that nobody sized should leave room for the rest of the machine |
//!
//! A key/value cache whose size is not chosen takes at most half of the memory that is available, and a plan that does not
//! fit what is available, or the limit of [`LoadOptions::memory_limit`](crate::LoadOptions::memory_limit), is refused
//! before anything is allocated.
