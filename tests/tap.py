"""Runs a module's unittest cases and prints each as a line of TAP, for Meson."""
import sys
import unittest


class Tap(unittest.TestResult):
    n = 0
    failed = False  # the case under way

    def startTest(self, test):
        super().startTest(test)
        self.failed = False

    def line(self, word, test, note=""):
        self.n += 1
        print(f"{word} {self.n} - {test.id().split('.', 1)[1]}{note}", flush=True)

    def addSuccess(self, test):
        self.line("ok", test)

    def addSkip(self, test, reason):
        self.line("ok", test, f" # SKIP {reason}")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.failed = True
        print(self._exc_info_to_string(err, test), file=sys.stderr, flush=True)

    addError = addFailure

    def addSubTest(self, test, subtest, err):
        if err:
            print(subtest.id(), file=sys.stderr)
            self.addFailure(test, err)

    def stopTest(self, test):
        super().stopTest(test)
        if self.failed:
            self.line("not ok", test)


def main():
    """All cases of the script, or those whose names are its arguments."""
    module, names = sys.modules["__main__"], sys.argv[1:]
    loader = unittest.defaultTestLoader
    suite = loader.loadTestsFromNames(names, module) if names else loader.loadTestsFromModule(module)
    print(f"1..{suite.countTestCases()}")
    result = Tap()
    suite.run(result)
    sys.exit(0 if result.wasSuccessful() else 1)
