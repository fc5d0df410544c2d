#pragma once
// The subcommands of the levin command: each is one function in a file of its own.
//
//   int env(int argc, char** argv);  // argv[0] is the subcommand's name

namespace levin::tools {

/// `ckpt inspect|verify|diff|convert|merge`: looks at checkpoints and makes others of them. Returns 1
/// where verify or diff found something.
int ckpt(int argc, char** argv);

/// Writes the options of run to a file that it reads; asks for them on a terminal.
int config(int argc, char** argv);

/// Prints versions, the machine, and which optional parts this build found. Returns the exit code.
int env(int argc, char** argv);

/// Writes the module of a Trainer's program as a program of torch.export. Returns 0.
int export_module(int argc, char** argv);

/// Trains a pretrained model on the rows of a file, and writes an adapter or a model. Returns 0.
int finetune(int argc, char** argv);

/// Writes on from prompts, or chats, with a model of a folder. Returns 0.
int generate(int argc, char** argv);

/// Writes the graph of a program's training step as text, for Graphviz, or as a page. Returns 0.
int graph(int argc, char** argv);

/// Prints the rows of docs/glossary.md that have all of the words. Returns 1 if there is none.
int help(int argc, char** argv);

/// Prints what a program's training step costs on a device and holds in memory. Returns 0.
int plan(int argc, char** argv);

/// Starts the ranks of a program and watches over them; its exit code is that of the first rank
/// that failed.
int run(int argc, char** argv);

/// Checks the installation on all devices: collectives, many ranks against one, a checkpoint.
/// Returns 0 when all is well.
int test(int argc, char** argv);

/// Prints the ids of texts, or the text of ids, by a tokenizer.json. Returns 0.
int tokenize(int argc, char** argv);

/// `xla check` compiles a program's training step for TPUs that are not there. Returns 0 when it
/// fits all of them, else 1.
int xla(int argc, char** argv);

}  // namespace levin::tools
