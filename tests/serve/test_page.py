"""The page in a real Chromium: what it shows is what the library computes.

One browser and one server for all tests. Without Chromium or playwright they are skipped: apt-get install chromium.
"""

import re
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from distributions import new_site
from elmo.embed.embedder import Embedder
from elmo.serve.app import create_app
from elmo.serve.run import in_background, load_tasks
from serve.small_tasks import install_all
from serving import language_model

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if CHROMIUM is None:
    pytest.skip("needs Chromium: apt-get install chromium", allow_module_level=True)

LINES = ["the cat sat on a mat.", "the dog ran on the bank."]


@pytest.fixture(scope="module")
def model() -> Embedder:
    return language_model()


@pytest.fixture(scope="module")
def address(model: Embedder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as patched:
        install_all(new_site(folder, patched), folder / "models")
        app = create_app(model, load_tasks(None, "cpu"))
    with in_background(app) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        found = started.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield found
        found.close()


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """The page with two sentences; nothing may fail, and nothing may be asked of another host."""
    context = browser.new_context(viewport={"width": 390, "height": 844})
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if is_error(message) else None)
    page.on("request", lambda request: None if request.url.startswith(address) else problems.append(request.url))
    page.goto(address)
    page.get_by_label("Sentences, one per line").first.fill("\n".join(LINES))
    page.get_by_role("button", name="Show words").click()
    page.get_by_text("14 words in 2 sentences.").wait_for()
    yield page
    context.close()
    assert problems == []


def is_error(message: Any) -> bool:
    """Whether a line of the console is an error; Chromium itself notes there what the server refuses."""
    return bool(message.type == "error" and "the server responded with a status of 422" not in message.text)


def choose(page: Any, word: str, number: int = 0) -> None:
    page.get_by_role("button", name=word, exact=True).nth(number).click()
    page.locator("#uses li").first.wait_for()


def table(page: Any) -> list[tuple[str, list[float]]]:
    """The similarities that are shown: a word and the number of its sentence ─▶ mix, layer 0, 1, 2."""
    rows = page.locator("#similar tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
    )
    return [(name, [float(value) for value in values]) for name, *values in rows]


def cosine(a: Any, b: Any) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_similarities_are_cosines_of_the_layers_and_of_the_mix(page: Any, model: Embedder) -> None:
    first, second = model.embed(LINES)
    choose(page, "sat")

    def check(weights: list[float]) -> None:
        shown = table(page)
        for word, array, index in (("dog 2", second, 1), ("cat 1", first, 1), ("bank 2", second, 5)):
            own, other = first[:, 2], array[:, index]
            wanted = [cosine(np.tensordot(weights, own, 1), np.tensordot(weights, other, 1))]
            wanted += [cosine(*pair) for pair in zip(own, other, strict=True)]
            assert dict(shown)[word] == pytest.approx(wanted, abs=0.006)
        mixes = [values[0] for _, values in shown]
        assert mixes == sorted(mixes, reverse=True)

    assert page.locator("output").all_inner_texts() == ["s = 0.333", "s = 0.333", "s = 0.333", "γ = 1.0"]
    check([1 / 3] * 3)
    page.get_by_label("Layer 2").fill("2")
    page.get_by_label("Layer 0").fill("-1")
    powers = np.exp([-1.0, 0.0, 2.0])
    weights = (powers / powers.sum()).tolist()
    shown = [f"s = {weight:.3f}" for weight in weights]
    assert page.locator("output").all_inner_texts() == [*shown, "γ = 1.0"]
    check(weights)
    page.get_by_label("γ").fill("2.5")
    assert page.locator("output").last.inner_text() == "γ = 2.5"
    length = 2.5 * np.linalg.norm(np.tensordot(weights, first[:, 2], 1))
    assert f"Length of “sat” in the mix: {length:.2f}." in page.locator("#mix-length").inner_text()
    check(weights)


def test_substitutes_uses_and_surprisal(page: Any, model: Embedder) -> None:
    choose(page, "dog")
    found = model.substitutes_by_direction(LINES[1], 1, 10)
    assert found.backward is not None
    lists = {
        "Both of them together": found.both,
        "Forward reads the words before": found.forward,
        "Backward reads the words after": found.backward,
    }
    assert page.locator("#substitutes ol").count() == 3
    for name, words in lists.items():
        shown = page.get_by_role("list", name=name, exact=True).get_by_role("listitem").all_inner_texts()
        assert [text.strip() for text in shown] == [f"{word}\n{100 * p:.1f} %" for word, p in words]
    assert page.locator("#uses li").count() == 8
    assert page.locator("#uses li mark").count() == 8
    scores = model.score(LINES[1])
    said = page.locator("ul.sentence").nth(1).locator("li").nth(2).locator(".sr-only").text_content()
    before, after = (-values[1] / np.log(2) for values in (scores.forward, scores.backward))
    assert said == f"Surprisal: {before:.1f} bits given the words before it, {after:.1f} bits given the words after it"
    shade = page.locator("ul.sentence").nth(1).locator("li").nth(2).locator(".heat").first
    assert float(shade.evaluate("e => e.style.getPropertyValue('--bits')")) == pytest.approx(before / 16, abs=1e-3)


def test_a_model_of_one_direction_has_one_list_of_substitutes(browser: Any) -> None:
    model = language_model(bidirectional=False)
    with in_background(create_app(model)) as address:
        context = browser.new_context()
        page = context.new_page()
        page.goto(address)
        choose(page, "play", 1)
        shown = page.get_by_role("list", name="Forward reads the words before", exact=True).get_by_role("listitem")
        shown.first.wait_for()
        forward = model.substitutes_by_direction("She wrote a play for the small theatre.", 3).forward
        assert [text.split("\n")[0].strip() for text in shown.all_inner_texts()] == [word for word, _ in forward]
        assert page.locator("#substitutes ol").count() == 1
        assert page.locator("ul.sentence").nth(1).locator("li").nth(1).locator(".heat").count() == 1
        context.close()


def test_it_works_by_keyboard_alone(page: Any) -> None:
    page.get_by_role("button", name="cat", exact=True).focus()
    page.keyboard.press("Enter")
    assert page.get_by_role("button", name="cat", exact=True).get_attribute("aria-pressed") == "true"
    page.get_by_role("heading", name="Similarity to “cat”, sentence 1").wait_for()
    page.get_by_label("Layer 1").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#w1").get_attribute("aria-valuetext") == "weight 0.1, s = 0.356"
    page.get_by_role("tab", name="Words").focus()
    page.keyboard.press("ArrowLeft")  # around to the last
    last = page.get_by_role("tab").last
    assert (last.get_attribute("aria-selected"), last.get_attribute("tabindex")) == ("true", "0")
    assert page.evaluate("document.activeElement.id") == last.get_attribute("id")
    assert not page.locator("#panel-words").is_visible()
    for control in page.locator("button, input, textarea").all():  # every control has a name
        assert control.evaluate("e => (e.labels?.[0] ?? e).textContent.trim()")


def test_each_task_has_a_tab_and_draws_its_answers(page: Any) -> None:
    assert page.get_by_role("tab").all_inner_texts() == ["Words", "chains", "names", "reader", "roles"]

    def predicted(name: str, **fields: str) -> Any:
        page.get_by_role("tab", name=name).click()
        panel = page.get_by_role("tabpanel")
        for label, text in fields.items():
            panel.get_by_label(label.replace("_", " ")).fill(text)
        panel.get_by_role("button", name="Predict").click()
        panel.locator(".answer").first.wait_for()
        return panel

    names = predicted("names", Sentences="Anna met Peter in Paris.\nOslo is cold.")
    assert names.locator(".entity").all_inner_texts() == ["AnnaPER", "PeterPER", "ParisLOC", "OsloLOC"]
    chains = predicted("chains", Text="Anna saw Rex. She fed it.")
    mentions = chains.locator(".mention").all_text_contents()
    assert mentions == ["Annachain 1", "Rexchain 2", "Shechain 1", "itchain 2"]
    colours = chains.locator(".mention").evaluate_all("all => all.map(e => getComputedStyle(e).backgroundColor)")
    assert colours[0] == colours[2] != colours[1] == colours[3]
    reader = predicted("reader", Paragraph="The old mill, built in 1712, stands on the river.", Question="When was it?")
    assert reader.locator(".answer").inner_text() == "The old mill, built in 1712, stands on the river."
    marked, hint = reader.locator("mark").inner_text(), reader.locator(".hint").inner_text()
    assert hint.startswith(f"Answer: {marked} (probability ")
    roles = predicted("roles", Sentences="The baker sold warm bread.")
    roles.locator("svg text").last.wait_for()  # the arcs are drawn when the words have their places
    assert roles.locator("svg text").all_text_contents() == ["ARG0", "ARG1"]
    assert roles.locator(".predicate").inner_text() == "sold"
    ends = roles.locator("svg path").evaluate_all("all => all.map(e => e.getPointAtLength(e.getTotalLength()).x)")
    box = roles.locator(".tokens span").evaluate_all("all => all.map(e => e.offsetLeft)")
    left = roles.locator("svg").evaluate("e => e.getBoundingClientRect().left - e.parentNode.getBoundingClientRect().x")
    assert box[0] < ends[0] + left < box[2] < box[3] < ends[1] + left  # from "sold" to both sides


def test_mistakes_are_said_and_texts_are_never_html(page: Any) -> None:
    page.locator("#text").fill("\n")
    page.get_by_role("button", name="Show words").click()
    assert page.locator("#status").inner_text() == "Write a sentence first."
    page.locator("#text").fill("x " * 9000)
    page.keyboard.press("Control+Enter")
    page.get_by_text("the request has 9,000 tokens; expected at most 8,192. Send less text").wait_for()
    page.locator("#text").fill("<img src=x onerror=alert(1)> <b>bold</b>")
    page.get_by_role("button", name="Show words").click()
    page.get_by_text("words in 1 sentences.").wait_for()
    assert page.locator("#sentences img, #sentences b").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_screen_needs_no_sideways_scrolling(browser: Any, address: str, scheme: str) -> None:
    context = browser.new_context(viewport={"width": 360, "height": 700}, color_scheme=scheme)
    page = context.new_page()
    page.goto(address)
    choose(page, "play", 1)
    page.locator("#substitutes li").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    paper, ink = page.evaluate("(s => [s.backgroundColor, s.color])(getComputedStyle(document.body))")
    assert (luminance(paper) < luminance(ink)) == (scheme == "dark")
    context.close()


def luminance(colour: str) -> int:
    return sum(map(int, re.findall(r"\d+", colour)[:3]))


def test_a_server_with_a_key_asks_for_it_and_one_without_tasks_has_no_tabs(browser: Any, model: Embedder) -> None:
    with in_background(create_app(model, key="s3cret")) as address:
        context = browser.new_context()
        page = context.new_page()
        page.goto(address)
        page.get_by_label("This server needs a key").fill("s3cret")
        page.get_by_role("button", name="Use key").click()
        page.get_by_text("words in 4 sentences.").wait_for()
        assert not page.get_by_role("tablist").is_visible()
        context.close()
