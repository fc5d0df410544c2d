// Functions and classes of a program, which need files that only a user has.
// LISTING

void run(int, char**) {}
