"""Broken rules of ``probes/describing.py``."""

from tests.conformance.mutants.mutant import Mutant, off

MUTANTS = (
    Mutant("filters-limit", "listing._matchers", "len(filters) > MAX_FILTERS or ", ""),
    Mutant(
        "describe-names-the-missing",
        "describe.volumes_by_id",
        "raise volumes_not_found(absent)",
        "raise volumes_not_found(volume_ids)",
    ),
    Mutant(
        "describe-names-all-missing",
        "describe.volumes_by_id",
        "raise volumes_not_found(absent)",
        "raise volumes_not_found(absent[:1])",
    ),
    Mutant(
        "describe-malformed-id",
        "params.check_id",
        "raise Ec2Error(_MALFORMED[prefix], f'Invalid id: \"{value}\"')",
        "raise invalid('bad id')",
    ),
    Mutant(
        "describe-id-of-another-kind",
        "params.check_id",
        "raise invalid(_WRONG",
        "raise Ec2Error(_MALFORMED[prefix], _WRONG",
    ),
    Mutant("describe-id-twice", "listing._candidates", "list(dict.fromkeys(named))", "named"),
    off("describe-thousand-ids", "listing._candidates", "len(named) > MAX_IDS"),
    Mutant("describe-pages", "listing._cut", "keys[page_size:]", "keys[page_size + 1 :]"),
    Mutant(
        "describe-page-size",
        "listing._page_size",
        "if not listing.min_page <= size",
        "if not 1 <= size",
    ),
    Mutant("describe-page-too-large", "listing._page_size", "<= listing.max_page:", "<= 5000:"),
    Mutant(
        "describe-pages-of-ids",
        "listing._page_size",
        "if by_id:",
        "if by_id and listing.ids != 'VolumeId':",
    ),
    Mutant(
        "describe-bad-page-token",
        "listing._go_on",
        'if rest is None:\n        raise Ec2Error("InvalidNextToken", "The specified NextToken is not valid.")',
        "rest = rest or []",
    ),
    Mutant("describe-by-id-filter", "filters.VOLUME_FIELDS", "volume-id", ""),
    Mutant(
        "filter-values-are-alternatives",
        "filters._acceptor",
        "each in exact or any(",
        "(len(exact) < 2 and each in exact) or any(",
    ),
    Mutant(
        "filters-add-up",
        "listing.list_things",
        "if all(match(each) for match in matches)",
        "if any(match(each) for match in matches) or not matches",
    ),
    Mutant(
        "filter-named-twice",
        "listing._matchers",
        "for name, values in filters]",
        "for name, values in dict(filters).items()]",
    ),
    Mutant("filter-wildcards", "filters._acceptor", 'r"[*?]"', 'r"[?]"'),
    Mutant(
        "filter-that-does-not-exist",
        "filters.matcher_of",
        'raise Ec2Error("InvalidParameterValue", f"The filter \'{name}\' is invalid")',
        "return lambda item: True",
    ),
    Mutant(
        "filter-values-limit",
        "listing._matchers",
        "values > MAX_FILTER_VALUES",
        "values > 2 * MAX_FILTER_VALUES",
    ),
    Mutant(
        "filter-values-limit-of-all",
        "listing._matchers",
        "values = sum(len(values) for _, values in filters)",
        "values = max([len(values) for _, values in filters], default=0)",
    ),
    Mutant(
        "filter-with-ids",
        "listing.list_things",
        "if all(match(each) for match in matches)",
        "if named or all(match(each) for match in matches)",
    ),
    Mutant("filter-fields", "filters.VOLUME_FIELDS", "size", ""),
    off("describe-dry-run", "listing.list_things", 'params.boolean("DryRun")'),
)
